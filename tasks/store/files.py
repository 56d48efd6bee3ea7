"""Files of one dataset's folder, on a local disk or any object store that fsspec knows.

A file appears under its final name whole or not at all: locally by a flushed temporary file and a
rename, elsewhere by one PUT (or one completed multipart upload, from 100 MB on). Every I/O fault
becomes a ``StoreError`` that names the file; requests to an object store are retried first
(``tasks.store.remote``). JSON files carry a digest of their bytes.
"""

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.remote import call_store, open_file, open_store

# part of temporary names; files that a killed process left may be deleted under the table's lock
TEMPORARY = ".tmp-"
# last field of a JSON file, and its length; computed with zeros in its place
DIGEST = "digest"
DIGEST_BYTES = 16
BLANK = "0" * (2 * DIGEST_BYTES)
FULL = "Free space there, then run the same command again, or `pairwright resume`"

Data = bytes | bytearray | memoryview
T = TypeVar("T")


@dataclass(frozen=True)
class Folder:
    """Folder at a path or URL, and its files; picklable, so that workers can open it again."""

    url: str

    @cached_property
    def _target(self) -> tuple[Any, str]:
        try:
            system, path = open_store(self.url)
        except (ImportError, ValueError) as error:
            remedy = ""
            if self.url.startswith("s3"):
                remedy = ": python -m pip install -c constraints.txt -e '.[s3]'"
            raise StoreError(
                f"{self.url}: cannot be opened as a dataset folder: {error}{remedy}"
            ) from error
        return system, path.rstrip("/") or "/"

    @property
    def is_local(self) -> bool:
        """Return whether the folder is on this machine's disk."""
        return isinstance(self._target[0], LocalFileSystem)

    def path(self, name: str) -> str:
        """Return a name below the folder as the file system's own path."""
        return f"{self._target[1]}/{name}"

    def _label(self, name: str) -> str:
        """Return a name below the folder as messages show it."""
        if self.is_local:
            return self.path(name)
        return f"{self.url.rstrip('/')}/{name}"

    def _ask(self, name: str, what: str, call: Callable[[], T]) -> T:
        """Return the result of a file system call; one to an object store is retried."""
        label = self._label(name)
        with naming(label, what):
            if self.is_local:
                return call()
            return call_store(call, label=label, what=what)

    def __getstate__(self) -> dict[str, str]:
        # An absolute path: a worker may be in another folder.
        return {"url": self._target[1] if self.is_local else self.url}

    def names(self, folder: str, ending: str = "") -> list[str]:
        """Return the sorted names of a folder's files with this ending; none if it is missing."""
        return [name for name in self._list(folder, "file") if name.endswith(ending)]

    def folders(self, folder: str) -> list[str]:
        """Return the sorted names of a folder's subfolders; none if it is missing."""
        return self._list(folder, "directory")

    def _list(self, folder: str, kind: Literal["file", "directory"]) -> list[str]:
        def names() -> list[str]:
            path = self.path(folder)
            try:
                if self.is_local:
                    return _scan(path, kind)
                entries = self._target[0].ls(path, detail=True, refresh=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [entry["name"].rsplit("/", 1)[-1] for entry in entries if entry["type"] == kind]

        return sorted(self._ask(folder, "listed", names))

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return self._ask(name, "looked up", lambda: bool(self._target[0].exists(self.path(name))))

    def open_for_reading(self, name: str) -> BinaryIO:
        """Open a file for random access reading."""
        system, _ = self._target
        path = self.path(name)
        label = self._label(name)
        with naming(label, "opened"):
            if self.is_local:
                return system.open(path, "rb")
            return open_file(system, path, label)

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        return self._ask(name, "read", lambda: self._target[0].cat_file(self.path(name)))

    def write(self, name: str, data: Data) -> None:
        """Write a whole file, replacing one of the same name; on return it is durable."""
        path = self.path(name)
        if self.is_local:
            with naming(path, "written"):
                _write_local(Path(path), data)
            return
        system, _ = self._target
        self._ask(name, "written", lambda: system.pipe_file(path, bytes(data)))

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless its name is taken; return whether it was written.

        On return it survives a loss of power. Atomic on a local disk and on stores with conditional
        writes (If-None-Match on S3, and the equivalents of Google and Azure).
        """
        if self.is_local:
            return self._create_local(name, data)
        if self.exists(name):  # for stores that ignore the condition
            return False
        system, _ = self._target
        path = self.path(name)
        try:
            self._ask(name, "written", lambda: system.pipe_file(path, data, mode="create"))
        except StoreError:
            if not self.exists(name):
                raise
            return self.read(name) == data  # the reply to an earlier attempt may have been lost
        return True

    def _create_local(self, name: str, data: bytes) -> bool:
        temporary = f"{name}{TEMPORARY}{uuid.uuid4().hex}"
        self.write(temporary, data)
        path = self.path(name)
        temporary_path = self.path(temporary)
        with naming(path, "written"):
            try:
                os.link(temporary_path, path)
            except FileExistsError:
                return False
            finally:
                Path(temporary_path).unlink()
            flush(Path(path).parent)
        return True

    def size_of(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._ask(name, "looked up", lambda: int(self._target[0].size(self.path(name))))

    def delete(self, name: str) -> None:
        """Delete a file, if it exists. A loss of power may bring it back until ``flush``."""

        def delete_file() -> None:
            with suppress(FileNotFoundError):
                self._target[0].rm_file(self.path(name))

        self._ask(name, "deleted", delete_file)

    def flush(self, folder: str) -> None:
        """Make deletions in a folder durable, also if the folder itself is gone."""
        if not self.is_local:
            return
        path = Path(self.path(folder))
        with naming(str(path), "written"):
            existing = next(parent for parent in (path, *path.parents) if parent.is_dir())
            flush(existing)


def _scan(path: str, kind: Literal["file", "directory"]) -> list[str]:
    """Return the names of a local folder's files or subfolders, without a call for each."""
    entries = list(os.scandir(path))
    if kind == "file":
        return [entry.name for entry in entries if entry.is_file()]
    return [entry.name for entry in entries if entry.is_dir()]


def numbered_files(folder: Folder, name: str) -> dict[int, str]:
    """Return the files "000001.json", ... of a folder, by number, in ascending order."""
    files: dict[int, str] = {}
    for file in folder.names(name, ".json"):
        stem = file.removesuffix(".json")
        if stem.isdecimal() and stem == f"{int(stem):06d}":
            files[int(stem)] = f"{name}/{file}"
    return dict(sorted(files.items()))


def _write_local(path: Path, data: Data) -> None:
    make_folder(path.parent)
    temporary = path.with_name(f"{path.name}{TEMPORARY}{uuid.uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)  # noqa: PTH105  (tests replace every system call of a write here)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        flush(folder.parent)


def flush(path: Path) -> None:
    """Make a file, or the entries of a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: str, what: str) -> Generator[None]:
    """Turn an I/O fault into a ``StoreError`` that names the file and the operation."""
    try:
        yield
    except OSError as error:
        remedy = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f". {FULL}"
        cause = error.strerror or error
        raise StoreError(f"{path}: could not be {what}: {cause}{remedy}") from error


def seal(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with a content and its digest."""
    text = json.dumps({**content, DIGEST: BLANK}, indent=1)
    digest = _digest(text)
    return text.replace(f'"{BLANK}"', f'"{digest}"').encode()


def read_sealed(folder: Folder, name: str, *, mend: str) -> dict[str, Any]:
    """Return the content of a JSON file; ``StoreError`` if it is missing or a byte has changed.

    The error's message ends with ``mend``, the remedy.
    """
    try:
        text = folder.read(name).decode()
        content = dict(json.loads(text))
        digest = str(content.pop(DIGEST, ""))
        if not digest:
            raise ValueError("it has no digest")
        if _digest(text.replace(f'"{digest}"', f'"{BLANK}"')) != digest:
            raise ValueError("its bytes do not match its digest")
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StoreError(f"{folder.path(name)}: is missing. {mend}") from error
    except (ValueError, TypeError, RecursionError) as error:  # JSON's and Unicode's are ValueErrors
        raise StoreError(f"{folder.path(name)}: is damaged: {error}. {mend}") from error
    return content


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
