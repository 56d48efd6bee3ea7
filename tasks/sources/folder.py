"""Read the images of a local folder.

Lists ``ItemRow`` without reading any file, and reads one item into an ``ImageRow``. Needs no
network and no model.

Listed are all files below the folder with an image's extension (any case), in the byte order of
their relative paths. Names that begin with a dot are left out; other extensions are ignored and
counted in the log. Links are followed, also out of the folder; a folder with several links is
listed once, under its first name, so links cannot loop. Names are bytes: anything but printable
UTF-8 is shown escaped.

An item's key hashes relative path, size and time of change, so that listing again or moving the
folder reads no file again. Unreadable files are listed too and end as dropped rows.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.sources.find_files import local_path, walk_files
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


def list_items(config: SourceConfig, limit: int | None = None) -> Iterator[ItemRow]:
    """Yield the folder's images in order, at most ``limit``; ``SourceError`` if there is none."""
    root = local_path(config.path, "a folder of images")
    if not root.is_dir():
        raise SourceError(f"{root}: is a file; give a folder of images")
    names = list(walk_files(root))
    images = [name for name in names if name.lower().endswith((*EXTENSIONS, "/"))]
    images.sort(key=os.fsencode)
    ignored = len(names) - len(images)
    if not images:
        raise SourceError(
            f"{root}: no image found ({ignored} other files); images end in {' '.join(EXTENSIONS)}"
        )
    folder = escape_name(str(root))
    log.info("%s: found %d images, ignored %d other files", folder, len(images), ignored)
    for name in images[:limit]:
        size, time_ns = size_and_time(root, name)
        locator = {"path": name, "size": size, "mtime_ns": time_ns}
        yield list_item("folder", escape_name(name), locator)


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
    """Yield the image of each listed file, or the reason why there is none."""
    for item in items:
        yield from read_one(item, _read, config)


def _read(item: ItemRow, config: SourceConfig) -> list[ImageRow]:
    locator = locate(item)
    name = locator["path"]
    if name.endswith("/"):
        raise RefusedEntryError("unreadable folder")
    listed = (locator["size"], locator["mtime_ns"])
    data = read_file(Path(config.path, name), config.images, listed)
    picture = SourceImage(data=data, name=item.name)
    return [read_image(item, picture, config, EntryMetadata())]


READER = Reader(
    kind="folder",
    about="a local folder of images, read recursively; its path alone is enough",
    example="folder:PHOTOS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
)
