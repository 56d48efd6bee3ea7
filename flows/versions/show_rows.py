"""Show rows in a notebook: a table with small images, a card, one line of text."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

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
    with version.resolved() as (build, _):
        return Card(render_card(Tables(build), table, row))


def show_rows(version: Version, table: str, rows: Sequence[Row], *, total: int) -> str:
    """Return some rows of a table as HTML; ``total`` is the table's number of rows."""
    cells: dict[str, list[str]] = {}  # by column
    for name in columns_without(version.find_stage(table).stage.writes, HIDDEN):
        values = [getattr(row, name) for row in rows]
        if not any(_is_bytes(value) for value in values):
            cells[name] = [_format_value(value) for value in values]
    columns = [name for name, texts in cells.items() if any(texts) or not rows]
    lines: list[tuple[list[str], list[str]]] = []
    for number, pictures in enumerate(_row_pictures(version, rows)):
        lines.append((pictures, [cells[name][number] for name in columns]))
    return render_rows(table, columns, lines, total=total)


def say_row(row: Row) -> str:
    """Return the texts and numbers of a row in one line."""
    texts: list[str] = []
    for field in fields(row):
        value = getattr(row, field.name)
        if field.name not in HIDDEN and not _is_bytes(value):
            texts.append(f"{field.name}={_format_value(value)!r}")
    return f"{type(row).__name__}({', '.join(texts)})"


def _is_bytes(value: Any) -> bool:
    """Return whether a value is bytes, or a tuple with some."""
    if isinstance(value, tuple):
        elements = cast("tuple[Any, ...]", value)
        return any(isinstance(element, bytes) for element in elements)
    return isinstance(value, bytes)


def _format_value(value: Any) -> str:
    """Return a value as the text of a cell."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Turn):
        return f"{value.role}: {_format_value(value.text)}"
    if isinstance(value, str) and KEY.fullmatch(value):
        return f"{value[:8]}..."
    if isinstance(value, tuple):
        text = ", ".join(map(_format_value, cast("tuple[Any, ...]", value)))
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _row_pictures(version: Version, rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the small pictures of each row: those of its pair, or of its image."""
    subjects = {row.subject for row in rows}
    pairs: dict[str, Row] = {row.key: row for row in rows}
    pairs.update({pair.key: pair for pair in _find_rows(version, "pairs", PairRow, subjects)})
    image_keys: list[tuple[str, ...]] = []
    for row in rows:
        pair = pairs.get(row.subject, row)
        if isinstance(pair, PairRow):
            image_keys.append((pair.first, pair.second))
        else:
            image_keys.append((pair.subject,))
    images = {row.key: row.image for row in rows if isinstance(row, ImageRow)}
    missing = set[str]().union(*image_keys) - images.keys()
    for image in _find_rows(version, "images", ImageRow, missing):
        images[image.key] = image.image
    pictures = {key: small_picture(data) for key, data in images.items()}
    for keys in image_keys:
        yield [pictures[key] for key in keys if key in pictures]


def _find_rows(version: Version, table: str, row_type: type[R], subjects: set[str]) -> list[R]:
    """Return the rows of a table about some subjects; none if the version lacks the table."""
    if not subjects or table not in {planned.stage.name for planned in version.planned}:
        return []
    index = version.index(table, extended=True)
    positions = index.find_positions(subjects)
    return list(index.rows_at(positions, row_type, columns_without(row_type, ("graph",))))
