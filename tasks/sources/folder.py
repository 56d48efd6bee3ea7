"""Read the images of a local folder.

Lists ``ItemRow`` without reading any file, and reads one item into an ``ImageRow``. Needs no network and no model.

What is listed: everything below the folder whose name ends like an image's (any case) and that is no folder, in the
order of the bytes of its relative path. Names that begin with a dot are left out; other endings are ignored and counted
in the log. Links are followed, also out of the folder; a folder that several links lead to is listed once, under its
first name, so links cannot loop. Names are bytes: whatever is no printable UTF-8 is shown escaped.

An item's key hashes relative path, size and time of change, so that neither listing again nor moving the folder reads
anything again. What cannot be read is listed all the same and ends as a dropped row.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow
from pairwright.tasks.sources.find_files import walk_files
from pairwright.tasks.sources.read_entry import (
    EXTENSIONS,
    About,
    Picture,
    RefusedEntryError,
    list_item,
    read_file,
    read_image,
    read_one,
    shown_name,
    size_and_time,
)
from pairwright.tasks.sources.reader import Read, Reader

log = logging.getLogger(__name__)


def list_items(config: SourceConfig, limit: int | None = None) -> Iterator[ItemRow]:
    """Yield the folder's images in order, the first ``limit`` of them; ``SourceError`` when there is none to list."""
    if "://" in config.path:
        raise SourceError(
            f"{config.path}: folders are read from local disks only; copy or mount it, and give the local path"
        )
    root = Path(config.path)
    if not root.is_dir():
        found = "is a file" if root.exists() else "there is no such folder"
        raise SourceError(f"{root}: {found}; give a folder that holds images")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(f"{root}: may not be read")
    names = list(walk_files(root))
    images = sorted((name for name in names if name.lower().endswith((*EXTENSIONS, "/"))), key=os.fsencode)
    ignored = len(names) - len(images)
    if not images:
        endings = " ".join(EXTENSIONS)
        raise SourceError(f"{root}: no image found ({ignored} other files); names of images end in {endings}")
    log.info("%s: found %d images, ignored %d other files", shown_name(str(root)), len(images), ignored)
    for name in images[:limit]:
        size, time_ns = size_and_time(root, name)
        yield list_item("folder", shown_name(name), {"path": name, "size": size, "mtime_ns": time_ns})


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the image of each listed file, or why there is none."""
    for item in items:
        yield from read_one(item, partial(_read, item, config))


def _read(item: ItemRow, config: SourceConfig) -> list[ImageRow]:
    place: dict[str, Any] = json.loads(item.locator)
    if place["path"].endswith("/"):
        raise RefusedEntryError("unreadable folder")
    data = read_file(Path(config.path, place["path"]), config.images, (place["size"], place["mtime_ns"]))
    return [read_image(item, Picture(data=data, name=item.name), config, About())]


READER = Reader(
    kind="folder",
    about="a local folder of images, read recursively; its path alone will do",
    example="folder:PHOTOS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
)
