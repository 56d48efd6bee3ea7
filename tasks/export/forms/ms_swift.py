"""Write preferences for ms-swift: JSON Lines of messages, with a rejected text or rejected images.

A line rejects one thing, so a preference that rejects a text and an image gives two lines, in separate files: if some
lines of a file lack a column, the loader fills in an empty one, which ms-swift refuses. Rows are read back by its
rules, as in its documentation of custom datasets and its preprocessor.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import MEDIA, Form, Setting, UnheldError, place_images, rejected_text
from pairwright.tasks.export.lines import MediaFolder, Record, open_lines, read_lines
from pairwright.tasks.export.sample import (
    Sample,
    as_messages,
    check_answer,
    check_turns,
    naming_row,
    need,
    opened_files,
)

MARKS = (*MEDIA, "<bbox>", "<ref-object>")
"""Marks that ms-swift replaces in texts."""


def _to_records(row: PreferenceRow, media: MediaFolder, setting: Setting) -> Iterator[tuple[str, Record]]:  # noqa: ARG001
    turns = place_images(row, MARKS)
    if not row.rejected and not row.rejected_images:
        raise UnheldError("nothing rejected")
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    messages.append({"role": "assistant", "content": row.chosen})
    if row.rejected:
        rejected = rejected_text(row)
        images = [media.put(image) for image in row.images]
        yield row.split, {"messages": messages, "images": images, "rejected_response": rejected}
    if row.rejected_images:
        images, others = ([media.put(image) for image in shown] for shown in (row.images, row.rejected_images))
        yield f"{row.split}-images", {"messages": messages, "images": images, "rejected_images": others}


def _check(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    for path in sorted((folder / "data").glob("*.jsonl")):
        columns: set[str] = set()
        for where, record in read_lines(folder, f"data/{path.name}"):
            columns = columns or set(record)
            need(true=set(record) == columns, where=where, why="rejects something else than the file's first line")
            yield _sample(folder, where, record)


def _sample(folder: Path, where: str, record: Record) -> Sample:
    with naming_row(where, "no messages"):
        turns = [(str(turn["role"]), str(turn["content"])) for turn in record["messages"]]
    need(true=bool(turns) and turns[-1][0] == "assistant", where=where, why="the last message is not an answer")
    images = opened_files(folder, record.get("images"), where)
    check_turns(turns[:-1], len(images), where)
    answers = [check_answer(turns[-1][1], where, "chosen")]
    if "rejected_response" in record:
        answers.append(check_answer(record["rejected_response"], where, "rejected"))
        need(true=answers[0] != answers[1], where=where, why="the rejected text is the chosen one")
    if "rejected_images" in record:
        rejected = opened_files(folder, record["rejected_images"], where)
        need(true=len(rejected) == len(images), where=where, why=f"{len(rejected)} rejected images for {len(images)}")
    need(true=bool(record.keys() & {"rejected_response", "rejected_images"}), where=where, why="rejects nothing")
    return Sample(where=where, messages=as_messages(turns[:-1]), images=images, answers=answers)


FORM = Form(
    name="ms-swift",
    about="preferences for ms-swift, with rejected texts and with rejected images: JSON Lines and image files",
    cannot=(
        "A line rejects one text or one set of images, so it lacks further negatives; it also lacks licences and "
        "how texts and images were made. Rejected images are in separate files (train-images.jsonl)."
    ),
    opens=open_lines(_to_records),
    check=_check,
    use=(
        "```bash\n"
        "ROOT_IMAGE_DIR=FOLDER swift rlhf --rlhf_type dpo --dataset FOLDER/data/train.jsonl \\\n"
        "    --val_dataset FOLDER/data/validation.jsonl --model MODEL\n"
        "```\n\n"
        "Paths of images are relative to `ROOT_IMAGE_DIR`. `train-images.jsonl` has the rows with rejected images;\n"
        "train on either file or on both."
    ),
    owns=frozenset({"data", "images"}),
)
