"""Render one row as a page of its own, or a few as a table, with pictures and looks inside: what a notebook shows."""

import base64
import io
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from PIL import Image

from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow, Row
from pairwright.tasks.pages.environment import HERE as LOOKS
from pairwright.tasks.report.gather_cards import HERE, gather_pairs, gather_singles, make_card_environment
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.write_images import PictureFolder
from pairwright.tasks.store.images import decode_rgb

STYLES = (LOOKS / "report.css", HERE / "pairs.css")
KINDS = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}
THUMBNAIL, QUALITY = 96, 80
"""Longest side in pixels and JPEG quality of a small picture."""
LONGEST = 2_000
"""Characters of a field that are shown."""


def render_card(tables: Tables, table: str, row: Row) -> str:
    """Return the page of a table's row: of a pair with all that was made of it, else of its fields and its image."""
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pictures = PictureFolder(Path(place))
        told: dict[str, Any] = {"pair": None, "single": None, "worded": tables.has("differences")}
        if tables.find("pairs", PairRow, [row.subject]):
            (told["pair"],) = gather_pairs(tables, [row.subject], pictures=pictures, first_number=1, page="")
        elif isinstance(row, PreferenceRow):
            found = [(row.key, row.subject)]
            (told["single"],) = gather_singles(tables, table, found, pictures=pictures, first_number=1)
        else:
            images = tables.find("images", ImageRow, [row.subject])
            told |= {"images": [(pictures.add_image(image), image.name) for image in images], "fields": _fields(row)}
        looks = "\n".join(path.read_text() for path in STYLES)
        page = make_card_environment().get_template("card.html.j2").render(**told, table=table, row=row, looks=looks)
        for picture in pictures.written.values():
            path = pictures.root / picture.src
            page = page.replace(f'src="{picture.src}"', f'src="{_address(path.read_bytes(), KINDS[path.suffix])}"')
        return page


def _fields(row: Row) -> list[tuple[str, str]]:
    values = [(one.name, getattr(row, one.name)) for one in fields(row)]
    return [
        (name, str(value)[:LONGEST])
        for name, value in values
        if value not in ("", (), None) and not isinstance(value, bytes)
    ]


def _address(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """Row of a table as it is shown: small pictures, then cells."""

    pictures: Sequence[str]
    """Addresses that hold them."""
    cells: Sequence[str]


def render_rows(name: str, columns: Sequence[str], rows: Sequence[ShownRow], *, total: int) -> str:
    """Return the rows as HTML; every text is escaped."""
    template = make_card_environment().get_template("rows.html.j2")
    return template.render(name=name, columns=columns, rows=rows, total=total)


def small_picture(data: bytes) -> str:
    """Return an encoded image as the address of a thumbnail."""
    image = Image.fromarray(decode_rgb(data))
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY)
    return _address(sink.getvalue(), "jpeg")
