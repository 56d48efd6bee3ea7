"""Read the images of a local folder.

Lists ``ItemRow`` without reading any file, and reads one item into an ``ImageRow``. Needs no network and no model.

What is listed: everything below the folder whose name ends in one of ``EXTENSIONS`` (any case) and that is no folder,
in the order of the bytes of its relative path. Names that begin with a dot, and other endings, are ignored and counted
in the log. Links are followed, also out of the folder; a folder that several links lead to is listed once, under its
first name, so links cannot loop. Names are bytes: whatever is no printable UTF-8 is shown escaped.

An item's key hashes relative path, size and time of change, so that neither listing again nor moving the folder reads
anything again. What cannot be read is listed all the same and ends as a dropped row.
"""

import errno
import json
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pairwright.schemas.config import ImagesConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, make_key
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.store.images import RefusedImageError, decode_rgb, probe_image

log = logging.getLogger(__name__)

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif")
_UNREADABLE = (-1, 0)
"""Stands for size and time where there are none, so that a repaired file has another key."""


def list_items(path: str, *, limit: int | None = None) -> Iterator[ItemRow]:
    """Yield the folder's images in order, the first ``limit`` of them; ``SourceError`` when there is none to list."""
    if "://" in path:
        raise SourceError(f"{path}: folders are read from local disks only; copy or mount it, and give the local path")
    if not Path(path).is_dir():
        found = "is a file" if Path(path).exists() else "there is no such folder"
        raise SourceError(f"{path}: {found}; give a folder that holds images")
    return _items(Path(path), limit)


def read_item(item: ItemRow, *, root: str, config: ImagesConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Read and decode one listed file: one ``ImageRow``, or the reason why there is none."""
    try:
        data = _read_bytes(item, Path(root), config)
        if isinstance(data, Dropped):
            yield data
            return
        info = probe_image(data, config)
        height, width, _ = decode_rgb(data).shape
    except RefusedImageError as refused:
        yield _dropped(item, refused.reason, refused.detail)
    except OSError as error:
        yield _unread(item, error)
    else:
        yield ImageRow(
            key=(key := make_key(data)),
            source_key=item.key,
            subject=key,
            image=data,
            format=info.format,
            width=width,
            height=height,
            name=item.name,
            source="folder",
            licence=config.licence,
            group="",
        )


def _items(root: Path, limit: int | None) -> Iterator[ItemRow]:
    ignored, count = [0], 0
    for relative in islice(_walk(root, ignored), limit):
        count += 1
        yield _item(root, relative)
    log.info("%s: listed %d images, ignored %d other files", shown_name(str(root)), count, ignored[0])
    if not count and limit != 0:
        endings = " ".join(EXTENSIONS)
        raise SourceError(f"{root}: no image found ({ignored[0]} other files); names of images end in {endings}")


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


def _item(root: Path, relative: str) -> ItemRow:
    size, time_ns = _size_and_time(root / relative)
    key = make_key("folder", os.fsencode(relative), size, time_ns)
    # ASCII, since Parquet's strings cannot hold the surrogates that stand for undecodable bytes.
    locator = json.dumps({"path": relative, "size": size, "mtime_ns": time_ns}, ensure_ascii=True)
    return ItemRow(key=key, source_key=key, subject=key, name=shown_name(relative), locator=locator)


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return _UNREADABLE
    return (status.st_size, status.st_mtime_ns) if os.access(path, os.R_OK) else _UNREADABLE


def shown_name(relative: str) -> str:
    """Return a path for people: undecodable bytes as ``\\xNN``, control characters and backslashes escaped."""
    return "".join(_shown(sign) for sign in relative)


def _shown(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":
        return f"\\x{ord(sign) - 0xDC00:02x}"
    return sign if sign.isprintable() and sign != "\\" else sign.encode("unicode_escape").decode("ascii")


def _read_bytes(item: ItemRow, root: Path, config: ImagesConfig) -> bytes | Dropped:
    place: dict[str, Any] = json.loads(item.locator)
    path = root / place["path"]
    # Opening a pipe waits for a writer, and opening a device may do things: look before.
    if (refused := _refuse(item, path.stat(), place=place, config=config)) is not None:
        return refused
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        refused = _refuse(item, os.fstat(file.fileno()), place=place, config=config)
        return refused or file.read(config.max_bytes)


def _refuse(item: ItemRow, status: os.stat_result, *, place: dict[str, Any], config: ImagesConfig) -> Dropped | None:
    if stat.S_ISDIR(status.st_mode):
        return _dropped(item, "unreadable folder")
    if not stat.S_ISREG(status.st_mode):
        return _dropped(item, "not a regular file")
    if status.st_size > config.max_bytes:
        return _dropped(item, "file too large", f"{status.st_size} bytes, the limit is {config.max_bytes}")
    # An unreadable file's size was not recorded.
    if place["size"] >= 0 and (status.st_size, status.st_mtime_ns) != (place["size"], place["mtime_ns"]):
        return _dropped(item, "changed since it was listed")
    return None


def _unread(item: ItemRow, error: OSError) -> Dropped | Failed:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _dropped(item, "missing file")
    if error.errno == errno.ELOOP:
        return _dropped(item, "symlink loop")
    if isinstance(error, PermissionError) or error.errno in (errno.ENAMETOOLONG, errno.ENXIO):
        return _dropped(item, "unreadable file", error.strerror or "")
    # Disks and networks recover: the item is owed again.
    return Failed(source_key=item.key, reason="I/O error", detail=f"{item.name}: {error}")


def _dropped(item: ItemRow, reason: str, detail: str = "") -> Dropped:
    return Dropped(source_key=item.key, reason=reason, detail=f"{item.name}: {detail}" if detail else item.name)


def _list(config: SourceConfig, limit: int | None) -> Iterator[ItemRow]:
    return list_items(config.path, limit=limit)


def _read(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped | Failed]:
    for item in items:
        yield from read_item(item, root=config.path, config=config.images)


READER = Reader(
    kind="folder",
    about="a local folder of images, read recursively; its path alone will do",
    example="folder:PHOTOS",
    list_items=_list,
    read_items=_read,
)
