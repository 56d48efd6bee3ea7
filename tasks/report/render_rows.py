"""Render a few rows as an HTML table with small pictures, all of it in one text: what a notebook shows.

Reads and writes nothing.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pairwright.tasks.pages.environment import make_environment
from pairwright.tasks.report.render_card import data_address
from pairwright.tasks.store.images import decode_rgb

HERE = Path(__file__).parent
SIDE = 96
QUALITY = 80


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """Row of a table as it is shown: small pictures, then cells."""

    pictures: Sequence[str]
    """Addresses that hold them."""
    cells: Sequence[str]


def render_rows(name: str, columns: Sequence[str], rows: Sequence[ShownRow], *, total: int) -> str:
    """Return the rows as HTML; every text is escaped."""
    return (
        make_environment(HERE).get_template("rows.html.j2").render(name=name, columns=columns, rows=rows, total=total)
    )


def small_picture(data: bytes) -> str:
    """Return an encoded image as the address of a thumbnail."""
    image = Image.fromarray(decode_rgb(data))
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY)
    return data_address(sink.getvalue(), ".jpg")
