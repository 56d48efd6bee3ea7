"""Manifests: names, sizes and hashes of a folder's files, to find damaged or missing ones.

A checkpoint and a finished model have a ``manifest.json``, an export has it in its marker; both are
written last. ``README.md`` is not listed, since people edit it; files added later are ignored.
"""

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import xxhash
from pydantic import BaseModel, ValidationError

from pairwright.schemas.errors import ModelError

MANIFEST = "manifest.json"
MARKER = ".pairwright-export.json"
README = "README.md"


class FileEntry(BaseModel, frozen=True):
    """Entry of a file."""

    size_bytes: int
    xxh3_128: str


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
