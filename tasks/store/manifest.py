"""Manifests: names, sizes and hashes of a folder's files, to find those that are damaged or missing.

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

MANIFEST, MARKER, README = "manifest.json", ".pairwright-export.json", "README.md"


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
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.relative_to(folder) != Path(README)
    )
    return {
        path.relative_to(folder).as_posix(): _list(path).model_dump()
        for path in files
        if path.name != MANIFEST
    }


def _list(path: Path) -> FileEntry:
    return FileEntry(size_bytes=path.stat().st_size, xxh3_128=digest(path, xxhash.xxh3_128))


def write_manifest(folder: Path) -> None:
    """Write the manifest of a complete folder."""
    (folder / MANIFEST).write_text(
        json.dumps({"files": list_files(folder)}, indent=1) + "\n", encoding="utf-8"
    )


def read_manifest(path: Path) -> dict[str, FileEntry]:
    """Return the entries of a manifest or marker; a marker of an earlier release has none."""
    return Manifest.model_validate_json(path.read_bytes()).files


def find_damage(folder: Path, manifest: str = MANIFEST) -> str:
    """Return what is wrong with the first file of a folder that is not as written; empty: nothing."""
    try:
        listed = read_manifest(folder / manifest)
    except FileNotFoundError:
        listed = {}
    except (ValidationError, OSError) as error:
        return f"{folder / manifest}: cannot be read: {str(error).partition(chr(10))[0]}"
    if not listed:
        return f"{folder}: has no manifest ({manifest}): it was deleted, or an earlier release wrote the folder"
    for path, wanted in ((folder / name, one) for name, one in listed.items()):
        try:
            if _list(path) != wanted:
                found = f"its {path.stat().st_size:,} bytes are not the {wanted.size_bytes:,} bytes written"
                return f"{path}: is damaged: {found}"
        except OSError as error:
            return f"{path}: {'is missing' if isinstance(error, FileNotFoundError) else 'cannot be read'}"
    return ""


def refuse_damage(folder: Path, *, field: str) -> None:
    """Raise ``ModelError`` if a model is not as written; without a manifest it is not checked."""
    if (folder / MANIFEST).is_file() and (damage := find_damage(folder)):
        raise ModelError(
            f"{field}: {damage}. Restore it from a copy, or train it again; if you changed it on purpose, delete "
            f"{folder / MANIFEST}"
        )
