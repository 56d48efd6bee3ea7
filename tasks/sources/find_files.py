"""Find the files of a source: a path, a pattern or a folder, on a local disk or any store that fsspec knows.

Reads names, sizes and times, never contents. Names are relative to the folder before the first
wildcard, so that a moved collection keeps its keys; names that begin with a dot are left out.
Patterns may have braces (``shards-{000..011}.tar``), as in shells.
"""

import glob
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.read_entry import EXTENSIONS
from pairwright.tasks.sources.reader import RefusedEntryError, shown_words

MAX_NAMES = 100_000
"""Maximum names that the braces of a pattern expand to."""
LOOKED_AT = 1000
"""Maximum names read to recognise a folder."""
_WILD = re.compile(r"[*?\[{]")
_INNERMOST = re.compile(r"\{([^{}]*,[^{}]*|\d{1,18}\.\.\d{1,18})\}")
_STAMPS = (
    *("ETag", "etag", "blob_id", "sha256", "mtime"),
    *("LastModified", "last_modified", "updated", "modified", "created"),
)
"""Names of the version mark in different file systems; the first present one is used."""


Seen = dict[str, Any]
"""The ``size`` of a file and its ``stamp``: time of change, or a remote store's version mark."""
UNSEEN: Seen = {"size": -1, "stamp": ""}


@dataclass(frozen=True, slots=True)
class FilePattern:
    """Folder of a source's files, with the pattern of their names; without one, all files below it."""

    address: str
    """The source as given."""
    system: Any
    root: str
    pattern: str

    @property
    def is_local(self) -> bool:
        """Return whether it is on this machine's disk."""
        return isinstance(self.system, LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the file system's own path of a file."""
        return f"{self.root}/{name}" if self.root or self.is_local else name

    def look(self, name: str, listed: Seen | None = None) -> Seen:
        """Return a file as it is now; ``RefusedEntryError`` if it is not one, or has changed since ``listed``."""
        with _refusing():
            info = self.system.info(self.path(name))
        if info["type"] != "file":
            raise RefusedEntryError("not a regular file")
        stamp = next((info[key] for key in _STAMPS if info.get(key)), "")
        # The same time is a number in a listing and a date for a single file.
        stamp = str(stamp.timestamp() if isinstance(stamp, datetime) else stamp)
        seen = {"size": int(info.get("size") or 0), "stamp": stamp}
        if listed and any(seen[key] != listed[key] for key in seen):
            raise RefusedEntryError("changed since it was listed")
        return seen

    def open(self, name: str, **options: Any) -> BinaryIO:
        """Open a file for random access reading; ``options`` are the file system's."""
        with _refusing():
            return self.system.open(self.path(name), "rb", **options)

    def names(self, endings: tuple[str, ...]) -> list[str]:
        """Return the sorted names of the files; below a folder, those with one of these endings."""
        cut = len(self.root)
        with reaching(self.address):
            if self.pattern and self.system.isfile(self.path(self.pattern)):
                return [self.pattern]
            if not self.pattern:
                remote = () if self.is_local else self.system.find(self.root)
                below = (
                    walk_files(Path(self.root or "/"))
                    if self.is_local
                    else (one[cut:].lstrip("/") for one in remote)
                )
                return _sorted(name for name in below if name.lower().endswith(endings))
            found: list[str] = []
            for pattern in expand_braces(self.pattern):
                if glob.has_magic(pattern):
                    paths = self.system.glob(self.path(pattern), detail=True).items()
                    found += _sorted(
                        path[cut:].lstrip("/")
                        for path, info in paths
                        if info["type"] != "directory"
                    )
                else:
                    found.append(pattern)
            return found


def _sorted(names: Iterable[str]) -> list[str]:
    shown = (name for name in names if not any(part.startswith(".") for part in name.split("/")))
    return sorted(shown, key=os.fsencode)


def walk_files(root: Path) -> Iterator[str]:
    """Yield the relative paths of the files below a folder; for an unreadable folder, its own path with a slash.

    Links are followed; a folder with several links is listed once, under its first name, so links
    cannot loop.
    """
    seen: set[tuple[int, int]] = set()
    stack = [""]  # no recursion: folders may be nested deeper than Python's limit
    while stack:
        folder = stack.pop()
        try:
            status = (root / folder).stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            yield folder
            continue
        # A link to itself is no folder: only ``os.path`` says so without an error.
        inner = {entry.name for entry in shown if _is_folder(entry)}
        yield from (folder + entry.name for entry in shown if entry.name not in inner)
        stack.extend(sorted((f"{folder}{name}/" for name in inner), key=os.fsencode, reverse=True))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one."""
    if entry.is_symlink():
        return Path(entry.path).is_dir()
    return entry.is_dir()


def holds(path: str, endings: tuple[str, ...], *inside: str) -> bool:
    """Return whether a path has one of these endings, or is a local folder of such files without images.

    Names of folders ``inside`` it are read as well.
    """
    if "://" in path or not Path(path).is_dir():
        return path.lower().endswith(endings)
    names: list[str] = []
    for place in (Path(path), *(Path(path, name) for name in inside)):
        with suppress(OSError):
            names += [entry.name.lower() for entry in islice(place.iterdir(), LOOKED_AT)]
    return any(name.endswith(endings) for name in names) and not any(
        name.endswith(EXTENSIONS) for name in names
    )


def local_path(path: str, what: str) -> Path:
    """Return a readable path on this machine; ``SourceError`` otherwise; ``what`` names what the path should be."""
    if "://" in path:
        raise SourceError(
            f"{path}: {what} must be on a local disk; copy or mount it and give the local path"
        )
    place = Path(path)
    if not place.exists():
        raise SourceError(f"{path}: no such file or folder; give the path of {what}")
    if not os.access(place, os.R_OK | os.X_OK * place.is_dir()):
        raise SourceError(f"{path}: permission denied; make it readable for this user")
    return place


def open_place(address: str) -> FilePattern:
    """Return the place of a source's files, without listing them."""
    with reaching(address):
        system, path = (
            fsspec.url_to_fs(address) if "://" in address else (LocalFileSystem(), address)
        )
        if system.isdir(path):
            return FilePattern(address, system, path.rstrip("/"), "")
        wild = None if system.isfile(path) else _WILD.search(path)
        cut = path.rfind("/", 0, wild.start() if wild else len(path))
        return FilePattern(address, system, path[: max(cut, 0)], path[cut + 1 :])


@contextmanager
def reaching(address: str) -> Generator[None]:
    """Turn any exception of a store into a ``SourceError`` that names the address."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{address}: cannot be read: {shown_words(error)}") from error


@contextmanager
def _refusing() -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise RefusedEntryError("missing file") from error
    except PermissionError as error:
        raise RefusedEntryError("unreadable file") from error


def expand_braces(pattern: str) -> list[str]:
    """Return the distinct names that a pattern expands to, in order; the pattern itself if it has no braces."""
    names = list(islice(_expand(pattern), MAX_NAMES + 1))
    if len(names) > MAX_NAMES:
        raise SourceError(
            f"{pattern}: its braces expand to more than {MAX_NAMES} names; use a smaller range"
        )
    return list(dict.fromkeys(names))


def _expand(pattern: str) -> Iterator[str]:
    found = _INNERMOST.search(pattern)
    if found is None:
        yield pattern
        return
    choices: Iterable[str] = found[1].split(",")
    if "," not in found[1]:  # a range, padded if one of its ends has a leading zero
        ends = first, last = found[1].split("..")
        width = (
            max(map(len, ends)) if any(len(end) > 1 and end.startswith("0") for end in ends) else 1
        )
        step = 1 if int(first) <= int(last) else -1
        choices = (str(number).zfill(width) for number in range(int(first), int(last) + step, step))
    for choice in choices:
        yield from _expand(pattern[: found.start()] + choice + pattern[found.end() :])
