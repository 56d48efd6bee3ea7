"""Fill in the page "What the data teaches": a table per experiment.

Run with ``python -m tests.proof.write_page`` after the results of a new run were copied to
``docs``. The page's words are written by hand, the tables of the results: per arm the mean of its
seeds, the lowest and the highest.
"""

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "what-the-data-teaches.md"
COLUMNS = {
    "answers true": ("whole", 100),
    "statements true": ("statements", 100),
    "unreadable": ("unreadable", 100),
    "CIDEr-D": ("cider", 1),
    "CPU seconds": ("cpu", 1),
}
SIZES = {"data": "texts", "people": "people's texts", "noise": "writer", "room": ""}
PLACE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Results = Sequence[Mapping[str, Any]]


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return the lines of ``results.jsonl``; none where it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_page(done: Results, folder: Path) -> Path:
    """Write the page with the tables of some results, and return its path."""
    page = folder / PAGE.name
    page.write_text(fill_page(PAGE.read_text(), done))
    return page


def fill_page(text: str, done: Results) -> str:
    """Return a page with the tables of some results; a table without results stays empty."""
    return PLACE.sub(lambda at: f"{at[1]}{make_table(of(done, at[2]), SIZES[at[2]])}{at[3]}", text)


def of(done: Results, experiment: str) -> Results:
    """Return the results of one experiment."""
    return [one for one in done if one["experiment"] == experiment]


def _arms(done: Results) -> dict[tuple[str, str], Results]:
    """Return what the seeds of each arm gave, in the order in which they were first trained."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in sorted(
        done, key=lambda one: (one["seed"], -one["task"][1] if one["experiment"] == "noise" else 0)
    ):
        found.setdefault((one["size"], one["arm"]), []).append(one)
    return dict(found)


def make_table(done: Results, size: str) -> str:
    """Return a Markdown table with a newline at its end."""
    heads = [*([size] if size else []), "", "seeds", *COLUMNS]
    table = [heads, ["---"] * len(heads)]
    for (told, arm), own in _arms(done).items():
        cells = [_spread([factor * one[name] for one in own]) for name, factor in COLUMNS.values()]
        table.append([*([told] if size else []), arm, str(len(own)), *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def _spread(values: Sequence[float]) -> str:
    ends = f" ({min(values):.1f}–{max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{ends}"


if __name__ == "__main__":
    print(write_page(read_results(PAGE.with_suffix(".jsonl")), PAGE.parent))
