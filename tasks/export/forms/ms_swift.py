"""Write preferences for ms-swift: JSON Lines of messages, with a rejected text or rejected images.

A line rejects one thing, so a preference that rejects a text and an image gives two lines, in
separate files: if some lines of a file lack a column, the loader fills in an empty one, which
ms-swift refuses. Rows are read back by its rules, as in its documentation of custom datasets and
its preprocessor.
"""

from collections.abc import Iterator
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import form
from pairwright.tasks.export.lines import MediaFolder, Record, decode_files, open_lines, read_lines

MARKS = (*form.MEDIA, "<bbox>", "<ref-object>")
"""Marks that ms-swift replaces in texts."""


def _to_records(
    row: PreferenceRow,
    media: MediaFolder,
    setting: form.ExportSettings,  # noqa: ARG001 - as for every form
) -> Iterator[tuple[str, Record]]:
    turns = form.mark_images(row, MARKS)
    if not row.rejected and not row.rejected_images:
        raise form.UnheldError("nothing rejected")
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    messages.append({"role": "assistant", "content": row.chosen})
    if row.rejected:
        rejected = form.rejected_text(row)
        images = [media.put(image) for image in row.images]
        yield row.split, {"messages": messages, "images": images, "rejected_response": rejected}
    if row.rejected_images:
        images = [media.put(image) for image in row.images]
        rejected_images = [media.put(image) for image in row.rejected_images]
        record = {"messages": messages, "images": images, "rejected_images": rejected_images}
        yield f"{row.split}-images", record


def _check(folder: Path, record: Record) -> None:
    messages = [(turn["role"], turn["content"]) for turn in record["messages"]]
    *turns, (role, chosen) = messages
    form.require(role == "assistant", "the last message is not an answer")
    images = decode_files(folder, record["images"])
    form.check_turns(turns, images)
    form.check_answer(chosen, "chosen")
    if "rejected_response" in record:
        form.check_answer(record["rejected_response"], "rejected")
        form.require(record["rejected_response"] != chosen, "the rejected text is the chosen one")
    else:
        rejected = decode_files(folder, record["rejected_images"])
        form.require(rejected == images, f"{rejected} rejected images for {images}")


FORM = form.Form(
    name="ms-swift",
    about=(
        "preferences for ms-swift, with rejected texts and with rejected images: "
        "JSON Lines and image files"
    ),
    cannot=(
        "A line rejects one text or one set of images, so it lacks further negatives; "
        "it also lacks licences and how texts and images were made. "
        "Rejected images are in separate files (train-images.jsonl)."
    ),
    opens=open_lines(_to_records),
    check=read_lines(_check),
    use=(
        "```bash\n"
        "ROOT_IMAGE_DIR=FOLDER swift rlhf --rlhf_type dpo --dataset FOLDER/data/train.jsonl \\\n"
        "    --val_dataset FOLDER/data/validation.jsonl --model MODEL\n"
        "```\n\n"
        "Paths of images are relative to `ROOT_IMAGE_DIR`. "
        "`train-images.jsonl` has the rows with rejected images;\n"
        "train on either file or on both."
    ),
    owns=frozenset({"data", "images"}),
)
