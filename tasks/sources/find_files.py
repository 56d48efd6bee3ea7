"""Find the files that a source names: one path, a pattern, a folder; on a local disk or wherever fsspec reaches.

Reads names, sizes and times, never a file's contents. Names are relative to the folder before the first wildcard, so
that a moved collection keeps its keys. Folders are searched whole, without following links to folders; names that begin
with a dot are left out. Patterns may hold braces (``shards-{000..011}.tar``), as in shells.
"""

import glob
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.read_entry import RefusedEntryError, shown_words

MAX_NAMES = 100_000
"""Names that the braces of a pattern may stand for."""
_WILD = re.compile(r"[*?\[{]")
_INNERMOST = re.compile(r"\{([^{}]*,[^{}]*|\d{1,18}\.\.\d{1,18})\}")
_STAMPS = (
    *("ETag", "etag", "blob_id", "sha256", "mtime"),
    *("LastModified", "last_modified", "updated", "modified", "created"),
)
"""What file systems call the mark of a file's version; the first one that there is counts."""
_PACKAGES = {
    "hf": "huggingface_hub", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file as it was when it was looked at."""

    name: str
    """Relative to its place."""
    size: int
    stamp: str
    """Its time of change (ns), or a remote store's own mark of its version."""


@dataclass(frozen=True, slots=True)
class Place:
    """Folder of a source's files, and the pattern of their names; no pattern: all below it."""

    address: str
    """As the source was written."""
    system: Any
    root: str
    pattern: str

    @property
    def is_local(self) -> bool:
        """Say whether it is on this machine's disk."""
        return isinstance(self.system, LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the file system's own path of a file."""
        return f"{self.root}/{name}" if self.root or self.is_local else name

    def look(self, name: str) -> SourceFile:
        """Return a file as it is now; ``RefusedEntryError`` where there is none, it is none, or it may not be read."""
        try:
            if self.is_local:
                status = Path(self.path(name)).stat()
                is_file, size, stamp = stat.S_ISREG(status.st_mode), status.st_size, str(status.st_mtime_ns)
            else:
                info = self.system.info(self.path(name))
                is_file, size, stamp = info["type"] == "file", int(info.get("size") or 0), _stamp_of(info)
        except FileNotFoundError as error:
            raise RefusedEntryError("missing file") from error
        except PermissionError as error:
            raise RefusedEntryError("unreadable file") from error
        if not is_file:
            raise RefusedEntryError("not a regular file")
        return SourceFile(name=name, size=size, stamp=stamp)

    def open(self, name: str, **options: Any) -> BinaryIO:
        """Open a file for reading at any place in it; ``options`` are those of a remote store's files."""
        return self.system.open(self.path(name), "rb", **({} if self.is_local else options))

    def names(self, endings: tuple[str, ...]) -> list[str]:
        """Return the names of the files, in order; below a folder, those with one of these endings.

        Raises:
            SourceError: the store cannot be listed.
        """
        with reaching(self.address):
            return list(self._names(endings))

    def _names(self, endings: tuple[str, ...]) -> Iterator[str]:
        if not self.pattern:
            yield from sorted((name for name in self._below() if _is_wanted(name, endings)), key=os.fsencode)
            return
        if self.system.isfile(self.path(self.pattern)):
            yield self.pattern
            return
        for name in expand_braces(self.pattern):
            if not glob.has_magic(name):
                yield name
            elif self.is_local:
                found = glob.glob(name, root_dir=self.root or "/", recursive=True)  # noqa: PTH207 - may start anywhere
                yield from sorted((one for one in found if Path(self.path(one)).is_file()), key=os.fsencode)
            else:
                yield from sorted(self._relative(path) for path in self.system.glob(self.path(name)))

    def _below(self) -> Iterator[str]:
        if not self.is_local:
            yield from map(self._relative, self.system.find(self.root))
            return
        for folder, inner, names in os.walk(self.root or "/"):
            inner[:] = [name for name in inner if not name.startswith(".")]
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 - names may be no UTF-8
                if Path(path).is_file():
                    yield os.path.relpath(path, self.root or "/")

    def _relative(self, path: str) -> str:
        return path[len(self.root) :].lstrip("/")


def open_place(address: str) -> Place:
    """Return where a source's files are; nothing is listed.

    Raises:
        SourceError: there is no store of this kind, or it cannot be reached.
    """
    with reaching(address):
        system, path = fsspec.url_to_fs(address) if "://" in address else (LocalFileSystem(), address)
        if system.isdir(path):
            return Place(address, system, path.rstrip("/"), "")
        wild = None if system.isfile(path) else _WILD.search(path)
        cut = path.rfind("/", 0, wild.start() if wild else len(path))
        return Place(address, system, path[: max(cut, 0)], path[cut + 1 :])


@contextmanager
def reaching(address: str) -> Generator[None]:
    """Turn what a store raises, of any type, into a ``SourceError`` that names the address."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        package = _PACKAGES.get(address.partition("://")[0])
        hint = f"; install it: python -m pip install {package}" if package and isinstance(error, ImportError) else ""
        raise SourceError(f"{address}: cannot be read: {shown_words(error)}{hint}") from error


def expand_braces(pattern: str) -> list[str]:
    """Return the names that a pattern stands for, in order, each once; itself where it has no braces to expand.

    Raises:
        SourceError: the braces stand for too many names.
    """
    names = list(islice(_expand(pattern), MAX_NAMES + 1))
    if len(names) > MAX_NAMES:
        raise SourceError(f"{pattern}: its braces stand for more than {MAX_NAMES} names")
    return list(dict.fromkeys(names))


def _expand(pattern: str) -> Iterator[str]:
    found = _INNERMOST.search(pattern)
    if found is None:
        yield pattern
        return
    for choice in found[1].split(",") if "," in found[1] else _numbers(*found[1].split("..")):
        yield from _expand(pattern[: found.start()] + choice + pattern[found.end() :])


def _numbers(first: str, last: str) -> Iterator[str]:
    """Yield the numbers from one to the other, padded where one of them is written with a leading zero."""
    padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if padded else 1
    step = 1 if int(first) <= int(last) else -1
    for number in range(int(first), int(last) + step, step):
        yield str(number).zfill(width)


def _is_wanted(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().endswith(endings) and not any(part.startswith(".") for part in name.split("/"))


def _stamp_of(info: dict[str, Any]) -> str:
    stamp = next((info[name] for name in _STAMPS if info.get(name)), "")
    # The same time comes as a number in a listing and as a date for one file.
    return str(stamp.timestamp() if isinstance(stamp, datetime) else stamp)
