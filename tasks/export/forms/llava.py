"""Write conversations about commonalities and differences (CaD) for LLaVA's training: one JSON list.

``image`` is one name, or a list of two, which CaD-VI's and VLM-R1's trainers accept. A list is read
back as trainers do: as a whole, human and gpt alternating, a mark per image.
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
    said = [
        {"from": form.SHAREGPT_ROLES[turn.role], "value": turn.text}
        for turn in form.place_images(row, [form.PLACE])
    ]
    names = [media.put(image) for image in row.images]
    yield (
        row.split,
        {
            "id": row.key,
            "image": names[0] if len(names) == 1 else names,
            "conversations": [*said, {"from": "gpt", "value": row.chosen}],
        },
    )


def _check(folder: Path, processor: Any) -> Iterator[str]:  # noqa: ARG001 - as for every form
    for path in sorted((folder / "data").glob("*.json")):
        with form.naming_row(f"data/{path.name}"):
            records = json.loads(path.read_text(encoding="utf-8"))
        for number, record in enumerate(records, start=1):
            with form.naming_row(where := f"data/{path.name}, entry {number} ({record['id']})"):
                names = [record["image"]] if isinstance(record["image"], str) else record["image"]
                *turns, (role, answer) = [
                    (form.ROLES[turn["from"]], turn["value"]) for turn in record["conversations"]
                ]
                form.need(role == "assistant", "the last message is not an answer")
                form.check_turns(turns, decode_files(folder, names))
                form.check_answer(answer, "last")
            yield where


FORM = form.Form(
    name="llava",
    about="conversations about commonalities and differences (CaD), for LLaVA-style tuning: JSON and image files",
    cannot=(
        "It holds conversations without a rejected side: the other formats hold preferences. The original "
        "LLaVA-1.5 takes one image per conversation; trainers such as CaD-VI's and VLM-R1's take these lists of two."
    ),
    opens=open_lines(_to_records, JSON_LIST),
    check=_check,
    use="```bash\n--data_path FOLDER/data/train.json --image_folder FOLDER\n```",
    owns=frozenset({"data", "images"}),
    reads="comparisons",
)
