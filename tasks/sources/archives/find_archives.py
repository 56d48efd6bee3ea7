"""Find the archives that a source names: one path, a pattern, a folder; on a local disk or wherever fsspec reaches.

Reads names, sizes and times, never an archive. Names are relative to the folder before the first wildcard, so that a
moved collection keeps its keys. Folders are searched whole, without following links to folders; names that begin with
a dot are left out.
"""

import glob
import os
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.archives.expand_braces import expand_braces

ENDINGS = (".tar", ".tar.gz", ".tgz")
_WILD = re.compile(r"[*?\[{]")
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "modified", "created")
_READ_AHEAD = 1 << 20
"""Bytes per request to a remote store: headers and small members that lie together cost one round trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """Be one archive as it was when it was looked at."""

    name: str
    """Relative to the root."""
    size: int = -1
    """Bytes; -1 where there is none to read."""
    stamp: str = ""
    """What its store says about its version: a tag, or a time of change."""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Root:
    """Be the folder that holds a source's archives, and the pattern of their names; none: all below it."""

    system: Any
    path: str
    pattern: str

    @property
    def is_local(self) -> bool:
        """Say whether it is on this machine's disk."""
        return isinstance(self.system, LocalFileSystem)

    def look(self, name: str) -> Archive:
        """Return an archive as it is now."""
        try:
            found = self.system.info(f"{self.path}/{name}")
        except FileNotFoundError:
            return Archive(name=name, refused="missing archive")
        if found["type"] != "file":
            return Archive(name=name, refused="not a regular file")
        stamp = next((str(found[key]) for key in _STAMPS if found.get(key) is not None), "")
        return Archive(name=name, size=int(found["size"] or 0), stamp=stamp)

    def open(self, name: str) -> BinaryIO:
        """Open an archive for reading at any place in it."""
        if self.is_local:
            return self.system.open(f"{self.path}/{name}", "rb")
        return self.system.open(f"{self.path}/{name}", "rb", block_size=_READ_AHEAD)


def find_root(source: str) -> Root:
    """Return the folder that a source's archives are in; ``SourceError`` when no store of this kind can be opened."""
    with reaching(source):
        system, path = fsspec.url_to_fs(source) if "://" in source else (LocalFileSystem(), source)
        if system.isdir(path):
            return Root(system, path.rstrip("/"), "")
        wild = None if system.isfile(path) else _WILD.search(path)
        cut = path.rfind("/", 0, wild.start() if wild else len(path))
        return Root(system, path[: max(cut, 0)], path[cut + 1 :])


def find_archives(root: Root, source: str) -> list[Archive]:
    """Return the archives of a source in order; one that a pattern without wildcards names may be missing.

    Raises:
        SourceError: there is none, or its store cannot be listed.
    """
    with reaching(source):
        archives = [root.look(name) for name in dict.fromkeys(_names(root))]
    if all(archive.refused for archive in archives):
        found = f"{archives[0].name}: {archives[0].refused}" if archives else f"no name ends in {' '.join(ENDINGS)}"
        raise SourceError(
            f"{source}: no archive found ({found}); give a tar, a pattern like NAME-{{000..011}}.tar, "
            "or a folder of tars"
        )
    return archives


def _names(root: Root) -> Iterator[str]:
    if not root.pattern:
        yield from sorted(_all_names(root), key=os.fsencode)
        return
    if root.look(root.pattern).size >= 0:
        yield root.pattern
        return
    for name in expand_braces(root.pattern):
        if not glob.has_magic(name):
            yield name
        elif root.is_local:
            found = glob.glob(name, root_dir=root.path or "/")  # noqa: PTH207  (Path.glob may not start in the root)
            yield from sorted(found, key=os.fsencode)
        else:
            yield from sorted(_relative(root, path) for path in root.system.glob(f"{root.path}/{name}"))


def _all_names(root: Root) -> Iterator[str]:
    found = _walk(root.path) if root.is_local else (_relative(root, path) for path in root.system.find(root.path))
    for name in found:
        if name.lower().endswith(ENDINGS) and not any(part.startswith(".") for part in name.split("/")):
            yield name


def _walk(folder: str) -> Iterator[str]:
    for inside, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(inside, name), folder)  # noqa: PTH118  (names may be no UTF-8)


def _relative(root: Root, path: str) -> str:
    return path.removeprefix(f"{root.path}/")


@contextmanager
def reaching(source: str) -> Generator[None]:
    """Turn whatever a store raises into a ``SourceError`` that names the source."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{source}: cannot be read: {type(error).__name__}: {error}") from error
