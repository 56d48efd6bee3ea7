"""Read conversations as LLaVA-style trainers do: a JSON list, human and gpt in turn, a mark per image."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.tasks.export.sample import Sample, as_parts, check_answer, check_turns, naming_row, need, opened_files

ROLES = {"human": "user", "gpt": "assistant", "system": "system"}


def read_samples(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the conversations of every list, which is loaded as a whole, as trainers do.

    Raises:
        BrokenRowError: one would not train.
    """
    for path in sorted((folder / "data").glob("*.json")):
        with naming_row(f"data/{path.name}", "no JSON"):
            records = json.loads(path.read_text(encoding="utf-8"))
        for number, record in enumerate(records, start=1):
            yield _sample(folder, f"data/{path.name}, entry {number}", record)


def _sample(folder: Path, where: str, record: Mapping[str, Any]) -> Sample:
    with naming_row(where, "no conversation"):
        where = f"{where} ({record['id']})"
        turns = [(ROLES[turn["from"]], str(turn["value"])) for turn in record["conversations"]]
        names = record["image"]
    need(true=bool(turns) and turns[-1][0] == "assistant", where=where, why="the last message is no answer")
    images = opened_files(folder, [names] if isinstance(names, str) else names, where)
    check_turns(turns[:-1], len(images), where)
    messages = [{"role": role, "content": as_parts(text)} for role, text in turns[:-1]]
    answer = check_answer(turns[-1][1], where, "last")
    return Sample(where=where, messages=messages, images=images, answers=[answer])
