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
from pairwright.tasks.store.remote import ask, open_file, open_store

# part of temporary names; files that a killed process left may be deleted under the table's lock
TEMPORARY = ".tmp-"
DIGEST, DIGEST_BYTES = (
    "digest",
    16,
)  # last field of a JSON file, and its length; computed with zeros in its place
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
            how = (
                ": python -m pip install -c constraints.txt -e '.[s3]'"
                if self.url.startswith("s3")
                else ""
            )
            raise StoreError(
                f"{self.url}: cannot be opened as a dataset folder: {error}{how}"
            ) from error
        return system, path.rstrip("/") or "/"

    @property
    def is_local(self) -> bool:
        """Return whether the folder is on this machine's disk."""
        return isinstance(self._target[0], LocalFileSystem)

    def path(self, name: str) -> str:
        """Return a name below the folder as the file system's own path."""
        return f"{self._target[1]}/{name}"

    def _place(self, name: str) -> str:
        """Return a name below the folder as messages show it."""
        return self.path(name) if self.is_local else f"{self.url.rstrip('/')}/{name}"

    def _ask(self, name: str, what: str, call: Callable[[], T]) -> T:
        """Return the result of a file system call; an object store's is retried after a temporary fault."""
        place = self._place(name)
        with naming(place, what):
            return call() if self.is_local else ask(call, place=place, what=what)

    def __getstate__(self) -> dict[str, str]:
        return {
            "url": self._target[1] if self.is_local else self.url
        }  # a worker may be in another folder

    def names(self, folder: str, ending: str = "") -> list[str]:
        """Return the sorted names of the files directly in a folder with this ending; none if it does not exist."""
        return [name for name in self._list(folder, "file") if name.endswith(ending)]

    def folders(self, folder: str) -> list[str]:
        """Return the sorted names of the folders directly in a folder; none if it does not exist."""
        return self._list(folder, "directory")

    def _list(self, folder: str, kind: Literal["file", "directory"]) -> list[str]:
        def names() -> list[str]:
            try:
                if self.is_local:  # without a look at each file
                    entries = list(os.scandir(self.path(folder)))
                    return [
                        one.name
                        for one in entries
                        if (one.is_file() if kind == "file" else one.is_dir())
                    ]
                found = self._target[0].ls(self.path(folder), detail=True, refresh=True)
                return [
                    entry["name"].rsplit("/", 1)[-1] for entry in found if entry["type"] == kind
                ]
            except (FileNotFoundError, NotADirectoryError):
                return []

        return sorted(self._ask(folder, "listed", names))

    def exists(self, name: str) -> bool:
        """Return whether a file exists."""
        return self._ask(name, "looked up", lambda: bool(self._target[0].exists(self.path(name))))

    def open(self, name: str) -> BinaryIO:
        """Open a file for random access reading."""
        with naming(self._place(name), "opened"):
            if self.is_local:
                return self._target[0].open(self.path(name), "rb")
            return open_file(self._target[0], self.path(name), self._place(name))

    def read(self, name: str) -> bytes:
        """Return a whole file."""
        return self._ask(name, "read", lambda: self._target[0].cat_file(self.path(name)))

    def write(self, name: str, data: Data) -> None:
        """Write a whole file, replacing one of the same name; on return it survives a loss of power."""
        if not self.is_local:
            self._ask(
                name, "written", lambda: self._target[0].pipe_file(self.path(name), bytes(data))
            )
            return
        with naming(self.path(name), "written"):
            _write_local(Path(self.path(name)), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless its name is taken; return whether it was written.

        On return it survives a loss of power. Atomic on a local disk and on stores with conditional
        writes (If-None-Match on S3, and the equivalents of Google and Azure).
        """
        if not self.is_local:
            if self.exists(name):  # for stores that ignore the condition
                return False
            try:
                self._ask(
                    name,
                    "written",
                    lambda: self._target[0].pipe_file(self.path(name), data, mode="create"),
                )
            except StoreError:
                if not self.exists(name):
                    raise
                return self.read(name) == data  # the reply to an earlier attempt may have been lost
            return True
        temporary = f"{name}{TEMPORARY}{uuid.uuid4().hex}"
        self.write(temporary, data)
        with naming(self.path(name), "written"):
            try:
                os.link(self.path(temporary), self.path(name))
            except FileExistsError:
                return False
            finally:
                Path(self.path(temporary)).unlink()
            flush(Path(self.path(name)).parent)
        return True

    def size_of(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return self._ask(name, "looked up", lambda: int(self._target[0].size(self.path(name))))

    def delete(self, name: str) -> None:
        """Delete a file, if it exists. A loss of power may bring it back until ``flush``."""

        def drop() -> None:
            with suppress(FileNotFoundError):
                self._target[0].rm_file(self.path(name))

        self._ask(name, "deleted", drop)

    def flush(self, folder: str) -> None:
        """Make deletions in a folder durable, also if the folder itself is gone."""
        if self.is_local:
            place = Path(self.path(folder))
            with naming(str(place), "written"):
                flush(next(here for here in (place, *place.parents) if here.is_dir()))


def numbered(folder: Folder, name: str) -> dict[int, str]:
    """Return the files "000001.json", ... of a folder, by number, in ascending order."""
    files = {file.removesuffix(".json"): f"{name}/{file}" for file in folder.names(name, ".json")}
    ours = (number for number in files if number.isdecimal() and number == f"{int(number):06d}")
    return {int(number): files[number] for number in sorted(ours, key=int)}


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
        full = f". {FULL}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise StoreError(f"{path}: could not be {what}: {error.strerror or error}{full}") from error


def seal(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with a content and its digest."""
    text = json.dumps({**content, DIGEST: BLANK}, indent=1)
    return text.replace(f'"{BLANK}"', f'"{_digest(text)}"').encode()


def read_sealed(folder: Folder, name: str, *, mend: str) -> dict[str, Any]:
    """Return the content of a JSON file; ``StoreError``, with the remedy, if it is missing or a byte has changed."""
    try:
        text = folder.read(name).decode()
        content = dict(json.loads(text))
        stated = str(content.pop(DIGEST, ""))
        if not stated or _digest(text.replace(f'"{stated}"', f'"{BLANK}"')) != stated:
            raise ValueError("its bytes do not match its digest" if stated else "it has no digest")
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StoreError(f"{folder.path(name)}: is missing. {mend}") from error
    except (ValueError, TypeError, RecursionError) as error:  # JSON's and Unicode's are ValueErrors
        raise StoreError(f"{folder.path(name)}: is damaged: {error}. {mend}") from error
    return content


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()
