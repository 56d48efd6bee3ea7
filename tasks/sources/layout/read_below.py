"""Read a file that a row or a manifest names, from the folder that it belongs to and from nowhere else.

The name is hostile: absolute paths, ``..`` and links that lead out of the folder are refused, and only regular files of
a limited size are read. Local disks.
"""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.sources.folder import shown_name

LONGEST_PATH = 4096
NO_FILE = (-1, 0)
"""Stands for size and time where there are none, so that a file that comes is another item."""
LEAVES = "path leaves the folder"


def is_below(relative: str) -> bool:
    """Say whether a name stays below its folder as it is written; links are looked at when the file is opened."""
    path = PurePosixPath(relative.replace("\\", "/"))
    is_plain = bool(relative) and len(relative) <= LONGEST_PATH and "\0" not in relative and is_unicode(relative)
    is_address = any(part.endswith(":") for part in path.parts[:1])
    return is_plain and not path.is_absolute() and ".." not in path.parts and not is_address


def is_unicode(text: str) -> bool:
    """Say whether a text can be stored; JSON can name halves of characters, which cannot."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def size_and_time(root: str, relative: str) -> tuple[int, int]:
    """Return a file's size and time of change, ``NO_FILE`` where there is none."""
    if not is_below(relative):
        return NO_FILE
    try:
        status = (Path(root) / relative).stat()
    except (OSError, ValueError):
        return NO_FILE
    return status.st_size, status.st_mtime_ns


def read_below(
    item: ItemRow, root: str, relative: str, config: ImagesConfig, *, listed: Sequence[int] | None = None
) -> bytes | Dropped | Failed:
    """Return the bytes of a file below ``root``, or why they cannot be had.

    With ``listed``, its size and time of change must be those, unless there was no file then.
    """
    if not is_below(relative):
        return refuse(item, LEAVES, relative)
    try:
        path = (Path(root) / relative).resolve()
        if not path.is_relative_to(Path(root).resolve()):
            return refuse(item, LEAVES, relative)
        if not stat.S_ISREG(path.stat().st_mode):  # opening a device may do things
            return refuse(item, "not a regular file", relative)
        # Opening a pipe that took the file's place would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return refuse(item, "not a regular file", relative)
            if status.st_size > config.max_bytes:
                limit = f"{status.st_size} bytes, the limit is {config.max_bytes}"
                return refuse(item, "file too large", f"{relative}: {limit}")
            if listed is not None and tuple(listed) not in (NO_FILE, (status.st_size, status.st_mtime_ns)):
                return refuse(item, "changed since it was listed", relative)
            return file.read(config.max_bytes)
    except (OSError, ValueError, RuntimeError) as error:
        return _unread(item, relative, error)


def _unread(item: ItemRow, relative: str, error: Exception) -> Dropped | Failed:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return refuse(item, "missing file", relative)
    if not isinstance(error, OSError) or error.errno in (errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.ENXIO):
        return refuse(item, "unreadable file", relative)
    # Disks and networks recover: the item is owed again.
    return Failed(source_key=item.key, reason="I/O error", detail=f"{item.name}: {shown_name(relative)}: {error}")


def refuse(item: ItemRow, reason: str, relative: str) -> Dropped:
    """Refuse an item because of a name in it, which is shown cut and escaped."""
    return Dropped(source_key=item.key, reason=reason, detail=f"{item.name}: {shown_name(relative[:200])}")
