"""Read images of Parquet files, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads it into an ``ImageRow`` for each image in its image
columns, with its captions. Needs pyarrow; remote addresses (``hf://``, ``s3://``, ``gs://``) need their package for
fsspec.

Image columns are found by type, caption columns by name, or both by ``reading.image_column`` and
``reading.caption_column``. The captions of a row with one image are that image's. Several images of a row are one
group, so that they go to one split; their captions are dropped, since it is unknown which image each describes. An
image given as a path is read from ``reading.images``, or else from the source's folder, never from outside it.
"""

from collections.abc import Iterable

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig
from pairwright.tasks.sources.annotations import texts_of
from pairwright.tasks.sources.find_files import holds
from pairwright.tasks.sources.read_entry import About, read_image
from pairwright.tasks.sources.reader import Given, RefusedEntryError
from pairwright.tasks.sources.tables import BYTES, TableRow, cells_of, is_struct, kinds_of, table_reader, wrong_columns

IMAGE_NAMES = ("image", "images", "img", "jpg", "jpeg", "png", "webp", "picture", "photo", "image_bytes", "bytes")
"""Names of columns of plain bytes that are taken for images."""
CAPTION_NAMES = ("caption", "captions", "text", "texts", "sentence", "sentences", "description", "descriptions")
MAX_IMAGES = 64
"""Maximum images of one row."""
CAPTION = "caption"
"""Name of the captions in a record; its images have numbers."""


def _choose(schema: pa.Schema, reading: ReadingConfig) -> dict[str, str]:
    """Return the columns of images, in the table's order, and of captions; none of these if none has a usual name."""
    kinds = kinds_of(schema)
    texts = [name for name, kind in kinds.items() if str(kind) in ("string", "large_string", "string_view")]
    plain = [name for name, kind in kinds.items() if str(kind) in BYTES]
    structs = [name for name, kind in kinds.items() if is_struct(kind)]
    if name := reading.image_column:
        if name not in (*texts, *plain, *structs):
            raise wrong_columns(f"reading.image_column: {name!r} holds no images here", schema)
        images = [name]
    else:
        images = (
            structs or [name for name in plain if name.lower() in IMAGE_NAMES] or (plain if len(plain) == 1 else [])
        )
        if not images:
            raise wrong_columns("no column is known to hold images; name one with reading.image_column", schema)
    if name := reading.caption_column:
        if name not in texts:
            raise wrong_columns(f"reading.caption_column: {name!r} holds no texts here", schema)
        captions = [name]
    else:
        by_name = {name.lower(): name for name in reversed(texts)}
        captions = [by_name[name] for name in CAPTION_NAMES if name in by_name][:1]
    numbered = {name: f"image {number}" for number, name in enumerate(images)}
    return numbered | dict.fromkeys((name for name in captions if name not in images), CAPTION)


def _read_row(row: TableRow) -> Iterable[Given]:
    cells = [cell for name, value in row.record.items() if name != CAPTION for cell in cells_of(value)]
    if not cells:
        raise RefusedEntryError("no image in the row")
    if len(cells) > MAX_IMAGES:
        raise RefusedEntryError("too many images in a row", f"{len(cells)}, the limit is {MAX_IMAGES}")
    about = About(group=row.item.name if len(cells) > 1 else "")
    captions = texts_of(row.record.get(CAPTION)) if len(cells) == 1 else ()
    images = [read_image(row.item, row.picture(cell, captions), row.config, about) for cell in cells]
    return {image.key: image for image in images}.values()


READER = table_reader(
    _choose,
    _read_row,
    kind="parquet",
    about="Parquet files with an image column; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    details=__doc__ or "",
    recognises=lambda path: path.startswith("hf://") or holds(path, (".parquet",), "data"),
)
