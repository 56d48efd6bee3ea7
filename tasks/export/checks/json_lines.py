"""Read JSON Lines, each line with the name by which it is reported."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairwright.tasks.export.sample import naming_row, need


def read_lines(folder: Path, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line's name and record.

    Raises:
        BrokenRowError: a line is no JSON object.
    """
    with (folder / name).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{name}, line {number}"
            with naming_row(where, "no JSON"):
                record = json.loads(line)
            need(true=isinstance(record, dict), where=where, why="no JSON object")
            yield where, record
