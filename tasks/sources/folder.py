"""Read the images of a local folder.

Lists ``ItemRow`` without reading an image, and reads one item into an ``ImageRow``. Needs no
network and no model.

Listed are all files below the folder with an image's extension (any case), and those without one
that begin as an image, in the byte order of their relative paths. Names that begin with a dot are
left out; other files are ignored and counted in the log. Captions, licence and group are read from
``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet`` beside the images (an ``imagefolder``):
``file_name`` and ``caption``, ``captions`` or ``text``, or ``reading.caption_column``.

Links are followed, also out of the folder; a folder with several links is listed once, under its
first name, so links cannot loop. Names are bytes: anything but printable UTF-8 is shown escaped.

An item's key hashes relative path, size and time of change, so that listing again or moving the
folder reads no file again. Unreadable files are listed too and end as dropped rows.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.images.decode import is_image_start
from pairwright.tasks.sources.find_files import local_path, walk_files
from pairwright.tasks.sources.imagefolder import read_metadata
from pairwright.tasks.sources.read_entry import (
    EXTENSIONS,
    EntryMetadata,
    SourceImage,
    read_file,
    read_image,
    size_and_time,
)
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    escape_name,
    list_item,
    locate,
    read_one,
)

log = logging.getLogger(__name__)
START = 32
"""Bytes by which an image is recognised."""
OTHERS = (
    *(".txt", ".md", ".json", ".jsonl", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".html", ".log"),
    *(".py", ".parquet", ".npy", ".npz", ".zip", ".tar", ".gz", ".mp4", ".mov", ".avi", ".pdf"),
)
"""Endings of files that are not opened to see whether they are images."""


def list_items(config: SourceConfig, limit: int | None = None) -> Iterator[ItemRow]:
    """Yield the folder's images in order, at most ``limit``; ``SourceError`` if there is none."""
    root = local_path(config.path, "a folder of images")
    if not root.is_dir():
        raise SourceError(f"{root}: is a file; give a folder of images")
    names = list(walk_files(root))
    images = [name for name in names if _may_be_image(root, name)]
    images.sort(key=os.fsencode)
    ignored = len(names) - len(images)
    if not images:
        raise SourceError(
            f"{root}: no image found ({ignored} other files); images end in {' '.join(EXTENSIONS)}"
        )
    folder = escape_name(str(root))
    log.info("%s: found %d images, ignored %d other files", folder, len(images), ignored)
    metadata = read_metadata(root, sorted(names, key=os.fsencode), config)
    for name in images[:limit]:
        size, time_ns = size_and_time(root, name)
        locator: dict[str, Any] = {"path": name, "size": size, "mtime_ns": time_ns}
        if name in metadata:
            locator["metadata"] = {
                field: value for field, value in asdict(metadata[name]).items() if value
            }
        yield list_item("folder", escape_name(name), locator)


def _may_be_image(root: Path, name: str) -> bool:
    """Return whether a file is listed: by its ending, or by its first bytes if it has another.

    So is a folder that cannot be read, whose name ends in a slash.
    """
    lower = name.lower()
    if lower.endswith((*EXTENSIONS, "/")):
        return True
    if lower.endswith(OTHERS):
        return False
    try:
        path = root / name
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return is_image_start(file.read(START))
    except OSError:
        return False


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield the image of each listed file, or the reason why there is none."""
    for item in items:
        yield from read_one(item, _read, config)


def _read(item: ItemRow, config: SourceConfig) -> list[ImageRow]:
    picture, metadata = read_picture(item, config)
    return [read_image(item, picture, config, metadata)]


def read_picture(item: ItemRow, config: SourceConfig) -> tuple[SourceImage, EntryMetadata]:
    """Return the file of an item of a folder, and its metadata."""
    locator = locate(item)
    name = locator["path"]
    if name.endswith("/"):
        raise RefusedEntryError("unreadable folder")
    listed = (locator["size"], locator["mtime_ns"])
    data = read_file(Path(config.path, name), config.images, listed)
    about = locator.get("metadata", {})
    picture = SourceImage(
        data=data,
        name=item.name,
        captions=tuple(about.get("captions", ())),
        remarks=tuple(about.get("remarks", ())),
    )
    metadata = EntryMetadata(licence=about.get("licence", ""), group=about.get("group", ""))
    return picture, metadata


READER = Reader(
    kind="folder",
    about="a local folder of images, read recursively; its path alone is enough",
    example="folder:PHOTOS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
)
