"""Read images of Parquet files, and of folders saved by ``datasets``, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads it into an ``ImageRow`` for each image in its image
columns, with its captions. Needs pyarrow; remote addresses (``hf://``, ``s3://``, ``gs://``) need their package for
fsspec.

Image columns are found by type, caption columns by name, or both by ``reading.image_column`` and
``reading.caption_column``. The captions of a row with one image are that image's. Several images of a row are one
group, so that they go to one split; their captions are dropped, since it is unknown which image each describes. An
image given as a path is read from ``reading.images``, or else from the source's folder, never from outside it.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig
from pairwright.tasks.sources.annotations import texts_of
from pairwright.tasks.sources.open_table import caption_columns, cells_of, image_columns
from pairwright.tasks.sources.read_entry import EXTENSIONS, About, RefusedEntryError, read_image
from pairwright.tasks.sources.reader import Given
from pairwright.tasks.sources.tables import TableRow, table_reader

SAVED = {"dataset_dict.json", "state.json"}
"""Files written by ``save_to_disk``."""
MAX_IMAGES = 64
"""Maximum images of one row."""
CAPTION = "caption"
"""Name of the captions in a record; its images have numbers."""


def _choose(schema: pa.Schema, reading: ReadingConfig) -> dict[str, str]:
    images = image_columns(schema, reading)
    captions = [name for name in caption_columns(schema, reading) if name not in images]
    return {name: f"image {number}" for number, name in enumerate(images)} | dict.fromkeys(captions, CAPTION)


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


def recognises(address: str) -> bool:
    """Return whether an address names Parquet files, or a local folder of them without image files."""
    if address.lower().endswith(".parquet") or address.startswith("hf://"):
        return True
    if "://" in address or not Path(address).is_dir():
        return False
    try:
        names = {path.name.lower() for path in Path(address).iterdir()}
        inside = {path.name.lower() for path in Path(address, "data").iterdir()} if "data" in names else set[str]()
    except OSError:
        return False
    if names & SAVED:
        return True
    has_images = any(name.endswith(EXTENSIONS) for name in names)
    return not has_images and any(name.endswith(".parquet") for name in names | inside)


READER = table_reader(
    _choose,
    _read_row,
    kind="parquet",
    about="Parquet files with an image column, or a folder saved by `datasets`; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    details=__doc__ or "",
    recognises=recognises,
)
