"""Write multimodal preferences for LLaMA-Factory: sharegpt with ``ranking``.

The folder is a ``dataset_dir`` with a ``dataset_info.json``: each split is an entry, and paths of
images are relative to it. Rows are read back by its rules, as in its data/README.md and
converters: it skips a row if roles do not alternate or the prompt has an even number of turns,
and fails if the numbers of image marks and images differ, or a file is missing.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import form
from pairwright.tasks.export.lines import MediaFolder, Record, decode_files, open_lines, read_lines

INFO = "dataset_info.json"
COLUMNS = {
    "messages": "conversations",
    "chosen": "chosen",
    "rejected": "rejected",
    "images": "images",
}
TAGS = {
    "role_tag": "from",
    "content_tag": "value",
    "user_tag": "human",
    "assistant_tag": "gpt",
    "system_tag": "system",
}


def _to_records(
    row: PreferenceRow,
    media: MediaFolder,
    setting: form.ExportSettings,  # noqa: ARG001 - as for every form
) -> Iterator[tuple[str, Record]]:
    turns = form.mark_images(row)
    rejected = form.rejected_text(row)
    conversations: list[Record] = []
    for turn in turns:
        conversations.append({"from": form.SHAREGPT_ROLES[turn.role], "value": turn.text})
    record = {
        "conversations": conversations,
        "chosen": {"from": "gpt", "value": row.chosen},
        "rejected": {"from": "gpt", "value": rejected},
        "images": [media.put(image) for image in row.images],
    }
    yield row.split, record


def _write_info(folder: Path, setting: form.ExportSettings, sizes: form.Sizes) -> None:
    layout = {"formatting": "sharegpt", "ranking": True, "columns": COLUMNS, "tags": TAGS}
    name = form.plain_name(setting.name)
    info: dict[str, Record] = {}
    for split in sizes:
        info[f"{name}_{split}"] = {"file_name": f"data/{split}.jsonl", **layout}
    (folder / INFO).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def _check(folder: Path, record: Record) -> None:
    turns = [(form.ROLES[turn["from"]], turn["value"]) for turn in record["conversations"]]
    form.check_turns(turns, decode_files(folder, record["images"]))
    for side in ("chosen", "rejected"):
        form.require(record[side]["from"] == "gpt", f"the {side} answer is not the assistant's")
        form.check_answer(record[side]["value"], side)


FORM = form.Form(
    name="llamafactory",
    about=(
        "multimodal preferences for LLaMA-Factory: sharegpt JSON Lines, dataset_info.json "
        "and image files"
    ),
    cannot=(
        "LLaMA-Factory shows both answers the same images, so rejected images are not in it; "
        "nor are further negatives, licences and how a text was made."
    ),
    opens=open_lines(_to_records, finish=_write_info),
    check=read_lines(_check),
    use=(
        "```yaml\n"
        "stage: dpo\n"
        "dataset_dir: FOLDER  "
        "# this folder: dataset_info.json is in it, and images are found from here\n"
        "media_dir: FOLDER\n"
        "dataset: NAME_train\n"
        "eval_dataset: NAME_validation\n"
        "```"
    ),
    owns=frozenset({"data", "images", INFO}),
)
