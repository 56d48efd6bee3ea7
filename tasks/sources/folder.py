"""Read the images of a local folder.

Lists ``ItemRow`` without reading any file, and reads one item into an ``ImageRow``. Needs no network and no model.

What is listed: everything below the folder whose name ends like an image's (any case) and that is no folder, in the
order of the bytes of its relative path. Names that begin with a dot, and other endings, are ignored and counted in the
log. Links are followed, also out of the folder; a folder that several links lead to is listed once, under its first
name, so links cannot loop. Names are bytes: whatever is no printable UTF-8 is shown escaped.

An item's key hashes relative path, size and time of change, so that neither listing again nor moving the folder reads
anything again. What cannot be read is listed all the same and ends as a dropped row.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, ItemRow, make_key
from pairwright.tasks.sources.read_entry import (
    EXTENSIONS,
    About,
    Picture,
    RefusedEntryError,
    read_each,
    read_file,
    read_image,
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
    ignored, count = [0], 0
    for relative in islice(_walk(root, ignored), limit):
        count += 1
        yield _item(root, relative)
    log.info("%s: listed %d images, ignored %d other files", shown_name(str(root)), count, ignored[0])
    if not count and limit != 0:
        endings = " ".join(EXTENSIONS)
        raise SourceError(f"{root}: no image found ({ignored[0]} other files); names of images end in {endings}")


def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
    """Yield the image of each listed file, or why there is none."""

    def read(item: ItemRow) -> list[ImageRow]:
        place: dict[str, Any] = json.loads(item.locator)
        if place["path"].endswith("/"):
            raise RefusedEntryError("unreadable folder")
        data = read_file(Path(config.path, place["path"]), config.images, (place["size"], place["mtime_ns"]))
        return [read_image(item, Picture(data=data, name=item.name), config, About())]

    return read_each(items, read)


def _item(root: Path, relative: str) -> ItemRow:
    size, time_ns = size_and_time(root, relative)
    key = make_key("folder", os.fsencode(relative), size, time_ns)
    # ASCII, since Parquet's strings cannot hold the surrogates that stand for undecodable bytes.
    locator = json.dumps({"path": relative, "size": size, "mtime_ns": time_ns}, ensure_ascii=True)
    return ItemRow(key=key, source_key=key, subject=key, name=shown_name(relative), locator=locator)


def _walk(root: Path, ignored: list[int]) -> Iterator[str]:
    """Yield relative paths in byte order; a folder that cannot be listed is yielded itself, with a final slash."""
    seen: set[tuple[int, int]] = set()
    # A stack, not recursion: folders may be nested deeper than Python recurses.
    stack = [iter(_names(root, "", seen=seen, ignored=ignored) or [])]
    while stack:
        relative = next(stack[-1], None)
        if relative is None:
            stack.pop()
            continue
        names = _names(root, relative, seen=seen, ignored=ignored) if relative.endswith("/") else None
        if names is None:
            yield relative
        else:
            stack.append(iter(names))


def _names(root: Path, relative: str, *, seen: set[tuple[int, int]], ignored: list[int]) -> list[str] | None:
    """Return a folder's images and folders (with a final slash) in byte order, and none if it was seen before."""
    try:
        status = (root / relative).stat()
        if (status.st_dev, status.st_ino) in seen:
            return []
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(root / relative) as entries:
            kept = [relative + name for entry in entries if (name := _wanted(entry, ignored))]
    except OSError as error:
        log.warning("%s: cannot be listed: %s", shown_name(relative), error)
        return None
    # With the slash in the names, the order inside each folder is the order of whole paths.
    return sorted(kept, key=os.fsencode)


def _wanted(entry: "os.DirEntry[str]", ignored: list[int]) -> str:
    """Return the entry's name, a folder's with a slash; the empty string for what is ignored."""
    try:
        is_folder = entry.is_dir()
    except OSError:  # a link to itself
        is_folder = False
    if not entry.name.startswith(".") and (is_folder or entry.name.lower().endswith(EXTENSIONS)):
        return entry.name + "/" * is_folder
    ignored[0] += not is_folder
    return ""


READER = Reader(
    kind="folder",
    about="a local folder of images, read recursively; its path alone will do",
    example="folder:PHOTOS",
    details=__doc__ or "",
    list_items=list_items,
    read_items=read_items,
)
