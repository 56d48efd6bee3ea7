"""Read the images of Parquet files, and of folders that ``datasets`` saved, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads one into the ``ImageRow`` rows that its image columns
hold, with its captions. Needs pyarrow; remote addresses (``hf://``, ``s3://``, ``gs://``) need their file system's
package for fsspec.

Images are found by the type of their column, captions by its name, or both by ``reading.image_column`` and
``reading.caption_column``. Where a row holds one image, its captions are the row's. Several images of a row are one
group, so that they go to one split; whose a caption is is then not known, and none is kept. An image that is only a
path is read from ``reading.images``, or else from the source's folder, and never from outside of it.
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
"""Files that ``save_to_disk`` writes."""
MAX_IMAGES = 64
"""Of one row."""
CAPTION = "caption"
"""What a record calls its captions; its images have numbers."""


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
    """Say whether an address names Parquet files, or a local folder of them that holds no images beside."""
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
    about="Parquet files with an image column, or what `datasets` saved; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    details=__doc__ or "",
    recognises=recognises,
)
