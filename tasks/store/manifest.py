"""Manifests: names, sizes and hashes of a folder's files, to find damaged or missing ones.

A checkpoint and a finished model have a ``manifest.json``, an export has it in its marker; both are
written last. ``README.md`` is not listed, since people edit it; files added later are ignored.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash
from pydantic import BaseModel, ValidationError

from pairwright.schemas.errors import ModelError
from pairwright.tasks.store.files import Folder

MANIFEST = "manifest.json"
MARKER = ".pairwright-export.json"
RECORD = "files.json"
"""Manifest of a folder whose files change one by one: a run's."""
README = "README.md"


class FileEntry(BaseModel, frozen=True):
    """Entry of a file."""

    size_bytes: int
    xxh3_128: str


class ChangedEntry(FileEntry, frozen=True):
    """Entry of a file that may be replaced while a process is killed."""

    before: FileEntry | None = None
    """The file that was there before; absent: none was."""
    is_new: bool = False
    """Whether there was none before."""

    def allows(self, entry: FileEntry | None) -> bool:
        """Return whether a file, or ``None``, is the written one or the one before."""
        if entry is None:
            return self.is_new
        expected = [(one.size_bytes, one.xxh3_128) for one in (self, self.before) if one]
        return (entry.size_bytes, entry.xxh3_128) in expected


class FileRecord(BaseModel, frozen=True):
    """Record of a folder's files."""

    files: dict[str, ChangedEntry] = {}


class Manifest(BaseModel, frozen=True):
    """Manifest; other fields of a marker are ignored."""

    files: dict[str, FileEntry] = {}


def digest(path: Path, algorithm: Callable[[], Any]) -> str:
    """Return the hash of a file, read once per process while its size and time stay the same."""
    state = path.stat()
    return _digest(path, algorithm, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, algorithm: Callable[[], Any], size: int, changed: int) -> str:  # noqa: ARG001 - the cache's key
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of all files below a folder, by name."""
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.name == MANIFEST or name == README:
            continue
        entries[name] = _file_entry(path).model_dump()
    return entries


def _file_entry(path: Path) -> FileEntry:
    return FileEntry(size_bytes=path.stat().st_size, xxh3_128=digest(path, xxhash.xxh3_128))


def write_manifest(folder: Path) -> None:
    """Write the manifest of a complete folder."""
    content = {"files": list_files(folder)}
    text = json.dumps(content, indent=1) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(path: Path) -> dict[str, FileEntry]:
    """Return the entries of a manifest or marker; a marker of an earlier release has none."""
    return Manifest.model_validate_json(path.read_bytes()).files


def record_files(folder: Path, names: Iterable[str]) -> None:
    """Write a record of existing files as they are; of all others nothing."""
    files = {
        name: ChangedEntry(**_file_entry(folder / name).model_dump())
        for name in names
        if (folder / name).exists()
    }
    _write_record(folder, files)


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a folder with a record, which is written first."""
    if (folder / RECORD).exists():
        files = dict(_read_record(folder))
        before = _file_entry(folder / name) if (folder / name).exists() else None
        files[name] = ChangedEntry(
            size_bytes=len(data),
            xxh3_128=xxhash.xxh3_128_hexdigest(data),
            before=before,
            is_new=before is None,
        )
        _write_record(folder, files)
    Folder(str(folder)).write(name, data)


def _read_record(folder: Path) -> dict[str, ChangedEntry]:
    return FileRecord.model_validate_json((folder / RECORD).read_bytes()).files


def _write_record(folder: Path, files: Mapping[str, ChangedEntry]) -> None:
    content = FileRecord(files=dict(files)).model_dump_json(indent=1)
    Folder(str(folder)).write(RECORD, content.encode())


def list_changed(folder: Path) -> list[str]:
    """Describe each file that differs from a folder's record; none without a record."""
    path = folder / RECORD
    if not path.exists():
        return []
    try:
        files = _read_record(folder)
    except (ValidationError, OSError) as error:
        return [f"{path}: cannot be read: {str(error).partition(chr(10))[0]}"]
    damaged: list[str] = []
    for name, entry in files.items():
        file = folder / name
        try:
            found = _file_entry(file)
        except FileNotFoundError:
            found = None
        if not entry.allows(found):
            why = "is missing" if found is None else "is not as written"
            damaged.append(f"{file}: {why}")
    return damaged


def find_damage(folder: Path, manifest: str = MANIFEST) -> str:
    """Describe the first file that differs from the manifest; empty: none does."""
    try:
        entries = read_manifest(folder / manifest)
    except FileNotFoundError:
        entries = {}
    except (ValidationError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        return f"{folder / manifest}: cannot be read: {first_line}"
    if not entries:
        return (
            f"{folder}: has no manifest ({manifest}): it was deleted, or an earlier release wrote "
            "the folder"
        )
    for name, entry in entries.items():
        damage = _file_damage(folder / name, entry)
        if damage:
            return damage
    return ""


def _file_damage(path: Path, entry: FileEntry) -> str:
    """Describe how a file differs from its entry; empty: it does not."""
    try:
        if _file_entry(path) == entry:
            return ""
        size = path.stat().st_size
    except FileNotFoundError:
        return f"{path}: is missing"
    except OSError:
        return f"{path}: cannot be read"
    return f"{path}: is damaged: its {size:,} bytes are not the {entry.size_bytes:,} bytes written"


def refuse_damage(folder: Path, *, field: str) -> None:
    """Raise ``ModelError`` if a model is not as written; without a manifest it is not checked."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return
    damage = find_damage(folder)
    if damage:
        raise ModelError(
            f"{field}: {damage}. Restore it from a copy, or train it again; if you changed it on "
            f"purpose, delete {manifest}"
        )
