"""Read the images of Parquet files, and of folders that ``datasets`` saved, from local disks and remote stores.

Lists one ``ItemRow`` per row, from the files' footers, and reads one into the ``ImageRow`` rows that its image columns
hold, with its captions. Needs pyarrow; remote addresses (``hf://``, ``s3://``, ``gs://``) need their file system's
package for fsspec.

Images are found by the type of their column, captions by its name, or both by ``reading.image_column`` and
``reading.caption_column``. Where a row holds one image, its captions are the row's. Several images of a row are one
group, so that they go to one split; whose a caption is is then not known, and none is kept. An image that is only a
path is read from ``reading.images``, or else from the source's folder, and never from outside of it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow
from pairwright.tasks.sources.folder import EXTENSIONS, shown_name
from pairwright.tasks.sources.layout.pairs import About, Picture, dropped, read_image
from pairwright.tasks.sources.layout.read_below import read_below
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.tables.read_rows import list_rows, read_rows
from pairwright.tasks.sources.tables.table_columns import (
    MOST_IMAGES,
    caption_columns,
    cells_of,
    image_columns,
    texts_of,
)
from pairwright.tasks.sources.tables.table_files import DICT, STATE, open_place

if TYPE_CHECKING:
    import pyarrow as pa

    from pairwright.tasks.sources.tables.table_columns import Cell

ROWS_PER_SHARD = 256
"""A row group is read from its beginning to the shard's last row of it: small shards would read large groups often."""

CAPTION = "caption"
"""What a record calls its captions; its images have numbers."""


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield the images of each row, or why there are none."""
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=_choose):
        if isinstance(record, Dropped | Failed):
            yield record
        else:
            yield from _read_row(item, record, config, folder=folder)


def image_folder(config: SourceConfig) -> str:
    """Return the local folder to which paths in rows are relative; empty for a remote source without one."""
    if config.reading.images:
        return config.reading.images
    place = open_place(config.path)
    return place.root if place.is_local else ""


def take_picture(
    item: ItemRow, cell: "Cell", config: SourceConfig, *, folder: str, captions: tuple[str, ...] = (), part: str = ""
) -> Picture | Dropped | Failed:
    """Return an image's bytes under a name that people recognise; one that is a path is read from the folder."""
    name = shown_name(f"{item.name} {part or Path(cell.path[-200:]).name}".strip())
    if cell.data is not None:
        return Picture(data=cell.data, name=name, captions=captions)
    if not folder:
        return dropped(item, "image is not in the table", shown_name(cell.path[:200]))
    data = read_below(item, folder, cell.path, config.images)
    return data if isinstance(data, Dropped | Failed) else Picture(data=data, name=name, captions=captions)


def _read_row(
    item: ItemRow, record: dict[str, Any], config: SourceConfig, *, folder: str
) -> Iterator[ImageRow | Dropped | Failed]:
    cells = [cell for name, value in record.items() if name != CAPTION for cell in cells_of(value)]
    if not cells:
        yield dropped(item, "no image in the row")
        return
    if len(cells) > MOST_IMAGES:
        yield dropped(item, "too many images in a row", f"{len(cells)}, the limit is {MOST_IMAGES}")
        return
    about = About(group=item.name if len(cells) > 1 else "")
    captions = texts_of(record.get(CAPTION)) if len(cells) == 1 else ()
    rows: list[ImageRow] = []
    for cell in cells:
        picture = take_picture(item, cell, config, folder=folder, captions=captions)
        row = read_image(item, picture, config, about=about) if isinstance(picture, Picture) else picture
        if not isinstance(row, ImageRow):
            yield row
            return
        rows.append(row)
    yield from {row.key: row for row in rows}.values()


def _choose(schema: "pa.Schema", reading: ReadingConfig) -> dict[str, str]:
    images = image_columns(schema, reading)
    captions = [name for name in caption_columns(schema, reading) if name not in images]
    return {name: f"image {number}" for number, name in enumerate(images)} | dict.fromkeys(captions, CAPTION)


def _list(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    return list_rows(config, limit, choose=_choose)


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
    if names & {DICT, STATE}:
        return True
    has_images = any(name.endswith(EXTENSIONS) for name in names)
    return not has_images and any(name.endswith(".parquet") for name in names | inside)


READER = Reader(
    kind="parquet",
    about="Parquet files with an image column, or what `datasets` saved; local, hf://, s3:// or gs://",
    example="parquet:hf://datasets/OWNER/NAME",
    list_items=_list,
    read_items=read_items,
    recognises=recognises,
    rows_per_shard=ROWS_PER_SHARD,
)
