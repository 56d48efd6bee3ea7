"""Show rows in a notebook: a table with small images, a card, one line of text."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pairwright.flows.versions.version import Version
from pairwright.schemas.arrow import R
from pairwright.schemas.rows import ImageRow, PairRow, Row, Turn
from pairwright.tasks.report.gather_cards import render_card, render_rows, small_picture
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.store.index import columns_without

SHOWN = 12  # maximum rows of a table in a notebook
LONGEST = 160  # maximum characters of a cell
HIDDEN = (
    "key",
    "source_key",
    "subject",
    "image_keys",
    "graph",
    "claims",
    "checks",
    "served",
    "vector",
)
"""Columns that are hidden from readers."""
KEY = re.compile(r"[0-9a-f]{32}")  # pattern of a row's key, of which a prefix is shown
HEIGHT = 720  # height of a card in a notebook, in pixels


@dataclass(frozen=True)
class Card:
    """Card of one row: a self-contained page. A notebook shows it; ``save`` writes it to a file."""

    page: str

    def save(self, path: str | Path) -> None:
        """Write the page to a file for a browser."""
        Path(path).write_text(self.page, encoding="utf-8", errors="replace")

    def _repr_html_(self) -> str:
        frame = f'sandbox="" style="width:100%;height:{HEIGHT}px;border:0"'
        return f'<iframe srcdoc="{html.escape(self.page)}" {frame}></iframe>'


def show_card(version: Version, table: str, row: Row) -> Card:
    """Return the card of a table's row."""
    with version.settled() as (build, _):
        return Card(render_card(Tables(build), table, row))


def show_rows(version: Version, table: str, rows: Sequence[Row], *, total: int) -> str:
    """Return some rows of a table as HTML; ``total`` is the table's number of rows."""
    names = columns_without(version.find(table).stage.writes, HIDDEN)
    names = [name for name in names if not any(_is_bytes(getattr(row, name)) for row in rows)]
    told = {name: [_said(getattr(row, name)) for row in rows] for name in names}
    columns = [name for name in names if any(told[name]) or not rows]
    lines = [
        (pictures, [told[name][number] for name in columns])
        for number, pictures in enumerate(_pictures(version, rows))
    ]
    return render_rows(table, columns, lines, total=total)


def say_row(row: Row) -> str:
    """Return the texts and numbers of a row in one line."""
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    said = (
        f"{name}={_said(value)!r}"
        for name, value in values.items()
        if name not in HIDDEN and not _is_bytes(value)
    )
    return f"{type(row).__name__}({', '.join(said)})"


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes) or (
        isinstance(value, tuple) and any(isinstance(one, bytes) for one in value)
    )  # pyright: ignore[reportUnknownVariableType]


def _said(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Turn):
        return f"{value.role}: {_said(value.text)}"
    if isinstance(value, str) and KEY.fullmatch(value):
        return f"{value[:8]}..."
    text = ", ".join(map(_said, value)) if isinstance(value, tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _pictures(version: Version, rows: Sequence[Row]) -> Iterator[list[str]]:
    pairs = {
        row.key: row
        for row in (*rows, *_find(version, "pairs", PairRow, {row.subject for row in rows}))
    }
    about = (pairs.get(row.subject, row) for row in rows)
    keys = [
        (one.first, one.second) if isinstance(one, PairRow) else (one.subject,) for one in about
    ]
    images = {row.key: row.image for row in rows if isinstance(row, ImageRow)}
    missing = {key for some in keys for key in some} - images.keys()
    images |= {row.key: row.image for row in _find(version, "images", ImageRow, missing)}
    small = {key: small_picture(data) for key, data in images.items()}
    for some in keys:
        yield [small[key] for key in some if key in small]


def _find(version: Version, name: str, row_type: type[R], subjects: set[str]) -> list[R]:
    if not subjects or name not in {planned.stage.name for planned in version.planned}:
        return []
    index = version.index(name)
    return list(index.rows(index.find(subjects), row_type, columns_without(row_type, ("graph",))))
