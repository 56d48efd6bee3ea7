"""Read sharegpt preferences by LLaMA-Factory's rules, as its data/README.md and converters have them.

It skips a row whose roles do not alternate or whose prompt has an even number of turns, and fails where marks of images
and images differ in number, or a file is missing.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.tasks.export.checks.json_lines import read_lines
from pairwright.tasks.export.sample import Sample, as_parts, check_answer, check_turns, naming_row, need, opened_files

INFO = "dataset_info.json"
OTHER_MEDIA = ("<video>", "<audio>")


def read_samples(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the rows of every entry of ``dataset_info.json``.

    Raises:
        BrokenRowError: a row would not train.
    """
    with naming_row(INFO, "cannot be read"):
        entries = json.loads((folder / INFO).read_text(encoding="utf-8"))
    for name, entry in entries.items():
        where = f"{INFO}, {name}"
        need(true=entry["formatting"] == "sharegpt" and entry["ranking"] is True, where=where, why="no preferences")
        need(true=(folder / entry["file_name"]).is_file(), where=where, why=f"there is no {entry['file_name']}")
        for line, record in read_lines(folder, entry["file_name"]):
            yield _sample(folder, line, record, entry)


def _sample(folder: Path, where: str, record: Mapping[str, Any], entry: Mapping[str, Any]) -> Sample:
    columns, tags = entry["columns"], entry["tags"]
    missing = set(columns.values()) - record.keys()
    need(true=not missing, where=where, why=f"lacks {', '.join(sorted(missing))}")
    role, text = tags["role_tag"], tags["content_tag"]
    roles = {tags["user_tag"]: "user", tags["assistant_tag"]: "assistant", tags["system_tag"]: "system"}
    with naming_row(where, "no messages"):
        turns = [(roles[turn[role]], str(turn[text])) for turn in record[columns["messages"]]]
        answers = [record[columns[side]] for side in ("chosen", "rejected")]
        by = [roles[answer[role]] for answer in answers]
    need(true=by == ["assistant", "assistant"], where=where, why="an answer is not the assistant's")
    said = [
        check_answer(answer[text], where, side) for answer, side in zip(answers, ("chosen", "rejected"), strict=True)
    ]
    texts = [*said, *(words for _, words in turns)]
    need(true=not any(mark in one for one in texts for mark in OTHER_MEDIA), where=where, why="marks of other media")
    images = opened_files(folder, record[columns["images"]], where)
    check_turns(turns, len(images), where)
    messages = [{"role": name, "content": as_parts(words)} for name, words in turns]
    return Sample(where=where, messages=messages, images=images, answers=said)
