"""Read preferences by ms-swift's rules, as its documentation of custom datasets and its preprocessor have them.

A line rejects a text or images. Of a column that some lines of a file lack, the loader makes an empty one, which
ms-swift refuses: all lines of a file must reject the same kind of thing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairwright.tasks.export.checks.json_lines import read_lines
from pairwright.tasks.export.sample import Sample, as_parts, check_answer, check_turns, naming_row, need, opened_files


def read_samples(folder: Path, processor: Any) -> Iterator[Sample]:  # noqa: ARG001 - as for every form
    """Yield the rows of every file.

    Raises:
        BrokenRowError: a row would not train.
    """
    for path in sorted((folder / "data").glob("*.jsonl")):
        columns: set[str] = set()
        for where, record in read_lines(folder, f"data/{path.name}"):
            columns = columns or set(record)
            need(true=set(record) == columns, where=where, why="rejects something else than the file's first line")
            yield _sample(folder, where, record)


def _sample(folder: Path, where: str, record: Mapping[str, Any]) -> Sample:
    with naming_row(where, "no messages"):
        turns = [(str(turn["role"]), str(turn["content"])) for turn in record["messages"]]
    need(true=bool(turns) and turns[-1][0] == "assistant", where=where, why="the last message is no answer")
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
    messages = [{"role": role, "content": as_parts(text)} for role, text in turns[:-1]]
    return Sample(where=where, messages=messages, images=images, answers=answers)
