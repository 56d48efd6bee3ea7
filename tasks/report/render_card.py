"""Render one row as a page of its own, or a few as a table, with pictures and looks inside: what a notebook shows.

Reads the rows about what the row is about; writes nothing that stays.
"""

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
from pairwright.tasks.pages.environment import make_environment
from pairwright.tasks.report.gather_cards import gather_pairs, gather_singles
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.report.write_images import FOLDER, PictureFolder
from pairwright.tasks.store.images import decode_rgb

HERE = Path(__file__).parent
STYLES = (LOOKS / "report.css", HERE / "pairs.css")
KINDS = {".jpg": "jpeg", ".png": "png", ".webp": "webp"}
THUMBNAIL, QUALITY = 96, 80
"""Longest side in pixels and JPEG quality of a small picture."""
LONGEST = 2_000
"""Characters of a field that are shown."""


def render_card(tables: Tables, table: str, row: Row) -> str:
    """Return the page of a row: of a pair with all that was made of it, else of its fields and its image.

    Args:
        tables: the dataset's, settled.
        table: the row's.
        row: the row.
    """
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pictures = PictureFolder(Path(place))
        told: dict[str, Any] = {
            "pair": None,
            "single": None,
            "worded": tables.has("differences"),
            "table": table,
            "row": row,
        }
        if tables.find("pairs", PairRow, [row.subject]):
            (told["pair"],) = gather_pairs(tables, [row.subject], pictures=pictures, first_number=1, page="")
        elif isinstance(row, PreferenceRow):
            found = [(row.key, row.subject)]
            (told["single"],) = gather_singles(tables, table, found, pictures=pictures, first_number=1)
        else:
            images = tables.find("images", ImageRow, [row.subject])
            told |= {"images": [(pictures.add_image(image), image.name) for image in images], "fields": _fields(row)}
        looks = "\n".join(path.read_text() for path in STYLES)
        page = make_environment(HERE).get_template("card.html.j2").render(**told, looks=looks)
        return _inlined(page, Path(place) / FOLDER)


def _fields(row: Row) -> list[tuple[str, str]]:
    values = {one.name: getattr(row, one.name) for one in fields(row)}
    shown = {name: str(value) for name, value in values.items() if value not in ("", (), None)}
    return [(name, text[:LONGEST]) for name, text in shown.items() if not isinstance(values[name], bytes)]


def _inlined(page: str, folder: Path) -> str:
    """Return the page with its pictures in it."""
    for path in folder.iterdir() if folder.is_dir() else ():
        page = page.replace(f'src="{FOLDER}/{path.name}"', f'src="{data_address(path.read_bytes(), path.suffix)}"')
    return page


def data_address(data: bytes, suffix: str) -> str:
    """Return a picture as the address that holds it."""
    return f"data:image/{KINDS[suffix]};base64,{base64.b64encode(data).decode()}"


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
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=QUALITY)
    return data_address(sink.getvalue(), ".jpg")
