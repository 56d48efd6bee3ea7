"""Write conversations about commonalities and differences (CaD) for LLaVA's training, as JSON.

Each split is one list. ``image`` is one name, or a list of two, which CaD-VI's and VLM-R1's
trainers accept. A list is read back as trainers do: as a whole, human and gpt alternating, a mark
per image.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import form
from pairwright.tasks.export.lines import JSON_LIST, MediaFolder, Record, decode_files, open_lines


def _to_records(
    row: PreferenceRow,
    media: MediaFolder,
    setting: form.ExportSettings,  # noqa: ARG001 - as for every form
) -> Iterator[tuple[str, Record]]:
    conversations: list[Record] = []
    for turn in form.mark_images(row, [form.IMAGE_MARK]):
        conversations.append({"from": form.SHAREGPT_ROLES[turn.role], "value": turn.text})
    conversations.append({"from": "gpt", "value": row.chosen})
    names = [media.put(image) for image in row.images]
    record = {
        "id": row.key,
        "image": names[0] if len(names) == 1 else names,
        "conversations": conversations,
    }
    yield row.split, record


def _check_folder(
    folder: Path,
    processor: Any,  # noqa: ARG001 - as for every form
) -> Iterator[str]:
    for path in sorted((folder / "data").glob("*.json")):
        name = f"data/{path.name}"
        with form.wrap_row_errors(name):
            records = json.loads(path.read_text(encoding="utf-8"))
        for number, record in enumerate(records, start=1):
            where = f"{name}, entry {number} ({record['id']})"
            with form.wrap_row_errors(where):
                _check(folder, record)
            yield where


def _check(folder: Path, record: Record) -> None:
    image = record["image"]
    names = [image] if isinstance(image, str) else image
    turns = [(form.ROLES[turn["from"]], turn["value"]) for turn in record["conversations"]]
    *prompt, (role, answer) = turns
    form.require(role == "assistant", "the last message is not an answer")
    form.check_turns(prompt, decode_files(folder, names))
    form.check_answer(answer, "last")


FORM = form.Form(
    name="llava",
    about=(
        "conversations about commonalities and differences (CaD), for LLaVA-style tuning: "
        "JSON and image files"
    ),
    cannot=(
        "It holds conversations without a rejected side: the other formats hold preferences. "
        "The original LLaVA-1.5 takes one image per conversation; trainers such as CaD-VI's and "
        "VLM-R1's take these lists of two."
    ),
    opens=open_lines(_to_records, JSON_LIST),
    check=_check_folder,
    use="```bash\n--data_path FOLDER/data/train.json --image_folder FOLDER\n```",
    owns=frozenset({"data", "images"}),
    reads="comparisons",
)
