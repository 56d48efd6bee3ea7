"""Fill in the page "What the data teaches": a table per experiment, and a chart of the answers that are true.

Run with ``python -m tests.proof.write_page`` after the results of a new run were copied to ``docs``. The page's words
are written by hand; tables and chart are of the results: per arm the mean of its seeds, the lowest and the highest.
"""

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
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
LINE, LEFT, WIDTH, TOP = 22, 330, 400, 30
"""Pixels of the chart: height of a line, where the axis begins and how long it is, where the first line stands."""
Results = Sequence[Mapping[str, Any]]


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return the lines of ``results.jsonl``; none where it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_page(done: Results, folder: Path) -> Path:
    """Write the page with the tables and the chart of some results, and return its path."""
    page = folder / PAGE.name
    page.write_text(fill_page(PAGE.read_text(), done))
    page.with_suffix(".svg").write_text(draw_chart(done))
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
    for one in sorted(done, key=lambda one: (one["seed"], -one["task"][1] if one["experiment"] == "noise" else 0)):
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


def draw_chart(done: Results, size: str = "two mistakes") -> str:
    """Return an SVG: of each arm that learns from a writer with mistakes, how many answers are true."""
    arms = {arm: own for (told, arm), own in _arms(of(done, "noise")).items() if told == size}
    return "\n".join(_lines(arms)) + "\n"


def _lines(arms: Mapping[str, Results]) -> Iterator[str]:
    height = TOP + LINE * len(arms) + 10
    box = f'viewBox="0 0 {LEFT + WIDTH + 60} {height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="13">'
    yield '<rect width="100%" height="100%" fill="#fff"/>'
    for share in range(0, 101, 25):
        x = LEFT + WIDTH * share / 100
        yield f'<path d="M{x} {TOP - 8}V{height - 8}" stroke="#ddd"/>'
        yield f'<text x="{x}" y="16" text-anchor="middle" fill="#555">{share} %</text>'
    for place, (arm, own) in enumerate(arms.items()):
        yield from _mark(arm, [100 * one["whole"] for one in own], TOP + LINE * place + LINE / 2)
    yield "</svg>"


def _mark(arm: str, values: Sequence[float], y: float) -> Iterator[str]:
    at, begin, end = (LEFT + WIDTH * value / 100 for value in (statistics.mean(values), min(values), max(values)))
    yield f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end" fill="#222">{escape(arm)}</text>'
    yield f'<path d="M{begin:.1f} {y}H{end:.1f}" stroke="#2a6fbb" stroke-width="2"/>'
    yield f'<circle cx="{at:.1f}" cy="{y}" r="5" fill="#2a6fbb"/>'


if __name__ == "__main__":
    print(write_page(read_results(PAGE.with_suffix(".jsonl")), PAGE.parent))
