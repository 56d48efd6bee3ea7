"""Write the tables of the proof: a line per arm, the mean of its seeds with the lowest and the highest."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLUMNS = {
    "statements true": ("statements", 100),
    "answers true": ("whole", 100),
    "CIDEr-D": ("cider", 1),
    "unreadable": ("unreadable", 100),
    "CPU seconds": ("cpu", 1),
}
TITLES = {
    "data": "More generated texts",
    "people": "Few texts that people wrote",
    "noise": "Writers that state something false",
    "room": "Preferences where a model still errs",
}
SIZES = {"data": "texts", "people": "people's texts", "noise": "false texts", "room": ""}


def write_page(done: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write ``tables.md``, and return its path."""
    parts = [
        f"## {title}\n\n{make_table([one for one in done if one['experiment'] == name], SIZES[name])}\n"
        for name, title in TITLES.items()
        if any(one["experiment"] == name for one in done)
    ]
    path = folder / "tables.md"
    path.write_text("\n".join(parts))
    return path


def make_table(done: Sequence[Mapping[str, Any]], size: str) -> str:
    """Return a Markdown table."""
    lines: dict[tuple[float, str], list[Mapping[str, Any]]] = {}
    for one in done:
        lines.setdefault((one["size"], one["arm"]), []).append(one)
    heads = [*([size] if size else []), "", "seeds", *COLUMNS]
    table = [heads, ["---"] * len(heads)]
    for (number, arm), own in lines.items():
        told = f"{number:.0%}" if 0 < number < 1 else f"{number:,}"
        cells = [_spread([factor * one[name] for one in own]) for name, factor in COLUMNS.values()]
        table.append([*([told] if size else []), arm, str(len(own)), *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"
