"""Find the files of a source: a path, a pattern or a folder, local or in a store of fsspec.

Reads names, sizes and times, never contents. Names are relative to the folder before the first
wildcard, so that a moved collection keeps its keys; names that begin with a dot are left out.
Patterns may have braces (``shards-{000..011}.tar``), as in shells.
"""

import glob
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.addresses import find_variables, hide_secrets, put_in, take_out
from pairwright.schemas.errors import SourceError, wrap_errors
from pairwright.tasks.sources.read_entry import EXTENSIONS
from pairwright.tasks.sources.reader import RefusedEntryError, describe_error

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


FileState = dict[str, Any]
"""The ``size`` of a file and its ``stamp``: time of change, or a remote store's version mark."""
UNKNOWN_STATE: FileState = {"size": -1, "stamp": ""}


@dataclass(frozen=True, slots=True)
class FilePattern:
    """Folder of a source's files, with the pattern of their names; empty: all files."""

    address: str
    """The source as given."""
    system: Any
    root: str
    pattern: str
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables in the address: names have no secret, paths do."""

    @property
    def is_local(self) -> bool:
        """Return whether it is on this machine's disk."""
        return isinstance(self.system, LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the file system's own path of a file."""
        name = put_in(name, self.variables)
        return f"{self.root}/{name}" if self.root or self.is_local else name

    def stat(self, name: str, listed: FileState | None = None) -> FileState:
        """Return the state of a file; ``RefusedEntryError`` if none, or not the ``listed`` one."""
        with _refuse_missing():
            info = self.system.info(self.path(name))
        if info["type"] != "file":
            raise RefusedEntryError("not a regular file")
        size = int(info.get("size") or 0)
        state = {"size": size, "stamp": _stamp_of(info)}
        if listed and any(state[key] != listed[key] for key in state):
            raise RefusedEntryError("changed since it was listed")
        return state

    def open_for_reading(self, name: str, **options: Any) -> BinaryIO:
        """Open a file for random access reading; ``options`` are the file system's."""
        with _refuse_missing():
            return self.system.open(self.path(name), "rb", **options)

    def names(self, endings: tuple[str, ...]) -> list[str]:
        """Return the sorted names of the files; below a folder, those with one of these endings."""
        return [take_out(name, self.variables) for name in self._find_names(endings)]

    def _find_names(self, endings: tuple[str, ...]) -> list[str]:
        with wrap_store_errors(self.address, self.variables):
            if not self.pattern:
                names = self._walk()
                return _sort_visible(name for name in names if name.lower().endswith(endings))
            if self.system.isfile(self.path(self.pattern)):
                return [self.pattern]
            matches: list[str] = []
            for pattern in expand_braces(self.pattern):
                if glob.has_magic(pattern):
                    matches += self._match(pattern)
                else:
                    matches.append(pattern)
            return matches

    def _walk(self) -> Iterable[str]:
        """Return the names of all files below the root."""
        if self.is_local:
            return walk_files(Path(self.root or "/"))
        return map(self._relative, self.system.find(self.root))

    def _match(self, pattern: str) -> list[str]:
        """Return the sorted names of the files that match a pattern without braces."""
        entries = self.system.glob(self.path(pattern), detail=True)
        paths = [path for path, info in entries.items() if info["type"] != "directory"]
        return _sort_visible(map(self._relative, paths))

    def _relative(self, path: str) -> str:
        return path[len(self.root) :].lstrip("/")


def _stamp_of(info: dict[str, Any]) -> str:
    stamps = [info[key] for key in _STAMPS if info.get(key)]
    if not stamps:
        return ""
    stamp = stamps[0]
    # The same time is a number in a listing and a date for a single file.
    if isinstance(stamp, datetime):
        stamp = stamp.timestamp()
    return str(stamp)


def _sort_visible(names: Iterable[str]) -> list[str]:
    return sorted(filter(_is_visible, names), key=os.fsencode)


def _is_visible(name: str) -> bool:
    return not any(part.startswith(".") for part in name.split("/"))


def walk_files(root: Path) -> Iterator[str]:
    """Yield relative paths of the files below a folder; unreadable folders end with a slash.

    Links are followed; a folder with several links is listed once, under its first name, so links
    cannot loop.
    """
    visited: set[tuple[int, int]] = set()
    stack = [""]  # no recursion: folders may be nested deeper than Python's limit
    while stack:
        folder = stack.pop()
        try:
            status = (root / folder).stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(root / folder) as entries:
                visible = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError:
            yield folder
            continue
        # A link to itself is no folder: only ``os.path`` says so without an error.
        inner = {entry.name for entry in visible if _is_folder(entry)}
        yield from (folder + entry.name for entry in visible if entry.name not in inner)
        subfolders = [f"{folder}{name}/" for name in inner]
        stack.extend(sorted(subfolders, key=os.fsencode, reverse=True))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one."""
    if entry.is_symlink():
        return Path(entry.path).is_dir()
    return entry.is_dir()


def has_files(path: str, endings: tuple[str, ...], *inside: str) -> bool:
    """Return whether a path has one of these endings, or is a local folder with such files.

    A folder that has images too does not count. Names in folders ``inside`` it are read as well.
    """
    if "://" in path or not Path(path).is_dir():
        return path.lower().endswith(endings)
    folders = [Path(path)]
    folders += [Path(path, name) for name in inside]
    names: list[str] = []
    for folder in folders:
        with suppress(OSError):
            entries = islice(folder.iterdir(), LOOKED_AT)
            names += [entry.name.lower() for entry in entries]
    if any(name.endswith(EXTENSIONS) for name in names):
        return False
    return any(name.endswith(endings) for name in names)


def local_path(text: str, what: str) -> Path:
    """Return a readable local path; ``SourceError`` otherwise; ``what`` says what it should be."""
    if "://" in text:
        raise SourceError(
            f"{text}: {what} must be on a local disk; copy or mount it and give the local path"
        )
    path = Path(text)
    if not path.exists():
        raise SourceError(f"{text}: no such file or folder; give the path of {what}")
    mode = os.R_OK
    if path.is_dir():
        mode |= os.X_OK
    if not os.access(path, mode):
        raise SourceError(f"{text}: permission denied; make it readable for this user")
    return path


def open_pattern(address: str) -> FilePattern:
    """Return the pattern of a source's files, without listing them."""
    variables = find_variables(address)
    with wrap_store_errors(address, variables):
        if "://" in address:
            system, path = fsspec.url_to_fs(put_in(address, variables))
        else:
            system = LocalFileSystem()
            path = address
        if system.isdir(path):
            return FilePattern(address, system, path.rstrip("/"), "", variables)
        wildcard = None if system.isfile(path) else _WILD.search(path)
        end = wildcard.start() if wildcard else len(path)
        slash = path.rfind("/", 0, end)
        root = path[: max(slash, 0)]
        pattern = path[slash + 1 :]
        return FilePattern(address, system, root, pattern, variables)


@contextmanager
def wrap_store_errors(
    address: str, variables: Mapping[str, str] = MappingProxyType({})
) -> Generator[None]:
    """Turn any exception of a store into a ``SourceError`` that names the address, no secret."""

    def name_address(error: Exception) -> SourceError:
        why = hide_secrets(take_out(describe_error(error), variables))
        return SourceError(f"{hide_secrets(address)}: cannot be read: {why}")

    with wrap_errors(name_address, keep=SourceError):
        yield


@contextmanager
def _refuse_missing() -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise RefusedEntryError("missing file") from error
    except PermissionError as error:
        raise RefusedEntryError("unreadable file") from error


def expand_braces(pattern: str) -> list[str]:
    """Return the distinct names that a pattern expands to, in order; without braces, itself."""
    names = list(islice(_expand(pattern), MAX_NAMES + 1))
    if len(names) > MAX_NAMES:
        raise SourceError(
            f"{pattern}: its braces expand to more than {MAX_NAMES} names; use a smaller range"
        )
    return list(dict.fromkeys(names))


def _expand(pattern: str) -> Iterator[str]:
    braces = _INNERMOST.search(pattern)
    if braces is None:
        yield pattern
        return
    before = pattern[: braces.start()]
    after = pattern[braces.end() :]
    for choice in _choices(braces[1]):
        yield from _expand(before + choice + after)


def _choices(text: str) -> Iterable[str]:
    """Return the alternatives between braces: ``a,b``, or a range like ``000..011``."""
    if "," in text:
        return text.split(",")
    ends = text.split("..")
    is_padded = any(len(end) > 1 and end.startswith("0") for end in ends)
    width = max(map(len, ends)) if is_padded else 1
    first, last = map(int, ends)
    step = 1 if first <= last else -1
    numbers = range(first, last + step, step)
    return (str(number).zfill(width) for number in numbers)
