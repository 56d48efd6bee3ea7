"""Write multimodal preferences for LLaMA-Factory: sharegpt with ``ranking``, and its ``dataset_info.json``.

The folder is a ``dataset_dir``: each split is an entry, and paths of images are relative to it. Rows are read back by
its rules, as in its data/README.md and converters: it skips a row if roles do not alternate or the prompt has an even
number of turns, and fails if the numbers of image marks and images differ, or a file is missing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.form import (
    MEDIA,
    SHAREGPT_ROLES,
    Form,
    Setting,
    Sizes,
    place_images,
    plain_name,
    rejected_text,
)
from pairwright.tasks.export.lines import MediaFolder, Record, open_lines, read_lines
from pairwright.tasks.export.sample import (
    PLACE,
    Sample,
    as_messages,
    check_answer,
    check_turns,
    naming_row,
    need,
    opened_files,
)

INFO = "dataset_info.json"
COLUMNS = {"messages": "conversations", "chosen": "chosen", "rejected": "rejected", "images": "images"}
TAGS = {"role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt", "system_tag": "system"}


def _to_records(row: PreferenceRow, media: MediaFolder, setting: Setting) -> Iterator[tuple[str, Record]]:  # noqa: ARG001
    turns, rejected = place_images(row), rejected_text(row)
    yield (
        row.split,
        {
            "conversations": [{"from": SHAREGPT_ROLES[turn.role], "value": turn.text} for turn in turns],
            "chosen": {"from": "gpt", "value": row.chosen},
            "rejected": {"from": "gpt", "value": rejected},
            "images": [media.put(image) for image in row.images],
        },
    )


def _write_info(folder: Path, setting: Setting, sizes: Sizes) -> None:
    told = {"formatting": "sharegpt", "ranking": True, "columns": COLUMNS, "tags": TAGS}
    info = {f"{plain_name(setting.name)}_{split}": {"file_name": f"data/{split}.jsonl", **told} for split in sizes}
    (folder / INFO).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def _check(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    with naming_row(INFO, "cannot be read"):
        entries = json.loads((folder / INFO).read_text(encoding="utf-8"))
    for name, entry in entries.items():
        where = f"{INFO}, {name}"
        need(true=entry["formatting"] == "sharegpt" and entry["ranking"] is True, where=where, why="no preferences")
        need(true=(folder / entry["file_name"]).is_file(), where=where, why=f"there is no {entry['file_name']}")
        for line, record in read_lines(folder, entry["file_name"]):
            yield _sample(folder, line, record, entry)


def _sample(folder: Path, where: str, record: Record, entry: Mapping[str, Any]) -> Sample:
    columns, tags = entry["columns"], entry["tags"]
    missing = set(columns.values()) - record.keys()
    need(true=not missing, where=where, why=f"lacks {', '.join(sorted(missing))}")
    role, text = tags["role_tag"], tags["content_tag"]
    roles = {tags["user_tag"]: "user", tags["assistant_tag"]: "assistant", tags["system_tag"]: "system"}
    with naming_row(where, "no messages"):
        turns = [(roles[turn[role]], str(turn[text])) for turn in record[columns["messages"]]]
        answers = {side: record[columns[side]] for side in ("chosen", "rejected")}
        by = [roles[one[role]] for one in answers.values()]
    need(true=by == ["assistant", "assistant"], where=where, why="an answer is not the assistant's")
    said = [check_answer(one[text], where, side) for side, one in answers.items()]
    others = [mark for mark in MEDIA if mark != PLACE]
    marked = any(mark in one for one in (*said, *(words for _, words in turns)) for mark in others)
    need(true=not marked, where=where, why="marks of other media")
    images = opened_files(folder, record[columns["images"]], where)
    check_turns(turns, len(images), where)
    return Sample(where=where, messages=as_messages(turns), images=images, answers=said)


FORM = Form(
    name="llamafactory",
    about="multimodal preferences for LLaMA-Factory: sharegpt JSON Lines, dataset_info.json and image files",
    cannot=(
        "LLaMA-Factory shows both answers the same images, so rejected images are not in it; nor are further "
        "negatives, licences and how a text was made."
    ),
    opens=open_lines(_to_records, finish=_write_info),
    check=_check,
    use=(
        "```yaml\n"
        "stage: dpo\n"
        "dataset_dir: FOLDER  # this folder: dataset_info.json is in it, and images are found from here\n"
        "media_dir: FOLDER\n"
        "dataset: NAME_train\n"
        "eval_dataset: NAME_validation\n"
        "```"
    ),
    owns=frozenset({"data", "images", INFO}),
)
