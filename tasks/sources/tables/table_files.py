"""Find the tables of a source: Parquet files, and folders that ``datasets`` saved, on a local disk or a remote store.

A source is one file, a glob, or a folder. In a folder of ``save_to_disk`` (``state.json``, ``dataset_dict.json``) the
Arrow files that it names are its tables; in any other, all Parquet files below it in the order of the bytes of their
paths, hidden ones left out; links to folders are not followed.

A table's split is what its name says (``data/train-00000-of-00002.parquet``), or a folder's or a word's in its name
that is one of ``SPLIT_WORDS``; else it is "train", as on the Hugging Face Hub.
"""

import json
import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import fsspec
from fsspec.implementations.local import LocalFileSystem

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.read_below import is_below

SPLIT_WORDS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
NUMBERED = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?")
"""What the Hub calls the files of a split."""
DICT, STATE = "dataset_dict.json", "state.json"
LARGEST_STATE = 16 << 20
STAMPS = ("ETag", "etag", "blob_id", "sha256", "mtime", "LastModified", "last_modified", "updated", "created")
"""What file systems call the mark of a file's version; the first one that there is counts."""
INSTALL = {
    "hf": "huggingface_hub", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """Be one file of a source."""

    relative: str
    """Below the source's root."""
    size: int
    stamp: str
    """Changes with the file: its time of change, or a store's own mark."""
    split: str


@dataclass(frozen=True, slots=True)
class Place:
    """Be where a source's tables are: a file system of fsspec and the folder on it."""

    address: str
    """As the source was written."""
    system: Any
    root: str
    name: str
    """The one file, or the glob, below the root; empty for a whole folder."""

    @property
    def is_local(self) -> bool:
        """Say whether it is on this machine's disk."""
        return isinstance(self.system, LocalFileSystem)

    def path(self, relative: str) -> str:
        """Return the file system's own path of a file."""
        return f"{self.root}/{relative}" if self.root else relative

    def look(self, relative: str) -> tuple[int, str]:
        """Return size and stamp of a file; ``FileNotFoundError`` where there is none."""
        if self.is_local:
            status = Path(self.path(relative)).stat()
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(f"{relative}: no regular file")
            return status.st_size, str(status.st_mtime_ns)
        return _size_and_stamp(self.system.info(self.path(relative)))

    def open(self, relative: str) -> BinaryIO:
        """Open a file for reading at any place in it."""
        return self.system.open(self.path(relative), "rb")


def open_place(address: str) -> Place:
    """Return where a source is; nothing is listed.

    Raises:
        SourceError: nothing is there, or it cannot be reached.
    """
    try:
        system, path = fsspec.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise SourceError(f"{address}: cannot be read: {error}{_hint(address, error)}") from error
    path = path.rstrip("/")
    with _reaching(address):
        if system.isdir(path):
            return Place(address, system, path, "")
        if system.isfile(path):
            root, _, name = path.rpartition("/")
            return Place(address, system, root, name)
    if any(sign in path for sign in "*?["):
        parts = path.split("/")
        plain = next(n for n, part in enumerate(parts) if any(sign in part for sign in "*?["))
        return Place(address, system, "/".join(parts[:plain]), "/".join(parts[plain:]))
    raise SourceError(f"{address}: there is no such file or folder; give a Parquet file, a folder of them, or a glob")


def find_tables(place: Place, splits: Sequence[str]) -> list[TableFile]:
    """Return the tables of the splits asked for, in order.

    Raises:
        SourceError: there is no table, no such split, or the place cannot be reached.
    """
    with _reaching(place.address):
        found = sorted(_find(place), key=lambda file: file.relative.encode("utf-8", "surrogateescape"))
    if not found:
        raise SourceError(f"{place.address}: holds no Parquet file and nothing that `datasets` saved")
    there = sorted({file.split for file in found})
    if unknown := sorted(set(splits) - set(there)):
        raise SourceError(
            f"{place.address}: reading.splits: there is no split {', '.join(unknown)}; there are: {', '.join(there)}"
        )
    return [file for file in found if not splits or file.split in splits]


def _find(place: Place) -> Iterator[TableFile]:
    if not place.name and place.is_local:
        if (Path(place.root) / DICT).is_file():
            for split in _names(_state(place, DICT).get("splits"), f"{place.root}/{DICT}"):
                yield from _saved(place, f"{split}/", split)
            return
        if (Path(place.root) / STATE).is_file():
            yield from _saved(place, "", "")
            return
    elif not place.name and any(place.system.isfile(place.path(name)) for name in (DICT, STATE)):
        raise SourceError(f"{place.address}: what `datasets` saved is read from local disks only: copy it there first")
    for relative, size, stamp in _walk(place):
        yield TableFile(relative=relative, size=size, stamp=stamp, split=split_of(relative))


def split_of(relative: str) -> str:
    """Return the split that a table's path names."""
    path = PurePosixPath(relative)
    if match := NUMBERED.fullmatch(path.stem):
        name = match["split"].rpartition("-")[2]
        if name not in ("data", "part"):
            return name
    folders = [name for name in reversed(path.parts[:-1]) if name.lower() in SPLIT_WORDS]
    words = [word for word in re.split(r"[\W_]+", path.stem) if word.lower() in SPLIT_WORDS]
    return next(iter((*folders, *words)), "train")


def _walk(place: Place) -> Iterator[tuple[str, int, str]]:
    """Yield path, size and stamp of the Parquet files; of a single file or a glob, of whatever it names."""
    if place.is_local:
        names = _local_names(place)
        for name in names:
            try:
                yield (name, *place.look(name))
            except OSError:
                if place.name == name:
                    raise SourceError(f"{place.address}: is no regular file") from None
        return
    if place.name:
        found: dict[str, Any] = place.system.glob(place.path(place.name), detail=True)
    else:
        found = place.system.find(place.root, detail=True)
    for path, info in found.items():
        relative = path[len(place.root) :].lstrip("/")
        wanted = bool(place.name) or _is_wanted(relative)
        if info["type"] == "file" and wanted:
            yield (relative, *_size_and_stamp(info))


def _local_names(place: Place) -> Iterator[str]:
    if place.name:
        path = place.path(place.name)
        found = [path] if Path(path).exists() else place.system.glob(path)
        yield from (os.path.relpath(path, place.root) for path in found if Path(path).is_file())
        return
    for folder, inner, files in os.walk(place.root):
        inner[:] = [name for name in inner if not name.startswith(".")]
        below = os.path.relpath(folder, place.root)
        for name in files:
            relative = name if below == "." else f"{below}/{name}"
            if _is_wanted(relative):
                yield relative


def _is_wanted(relative: str) -> bool:
    parts = relative.split("/")
    return parts[-1].lower().endswith(".parquet") and not any(part.startswith(".") for part in parts)


def _saved(place: Place, below: str, split: str) -> Iterator[TableFile]:
    """Yield the Arrow files that a folder of ``save_to_disk`` names."""
    where = f"{below}{STATE}"
    state = _state(place, where)
    if state.get("_indices_data_files"):
        raise SourceError(f"{place.address}: {where} selects rows; save it again with a newer `datasets`")
    entries = state.get("_data_files")
    files = [one.get("filename") for one in entries if isinstance(one, dict)] if isinstance(entries, list) else None
    own = split or (state["_split"] if isinstance(state.get("_split"), str) and state["_split"] else "train")
    for name in _names(files, f"{place.root}/{where}"):
        relative = f"{below}{name}"
        try:
            size, stamp = place.look(relative)
        except OSError:
            size, stamp = -1, ""  # listed all the same, so that it is counted
        yield TableFile(relative=relative, size=size, stamp=stamp, split=own)


def _state(place: Place, relative: str) -> dict[str, Any]:
    path = Path(place.path(relative))
    try:
        with path.open("rb") as file:
            state = json.loads(file.read(LARGEST_STATE))
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path}: cannot be read as what `datasets` saved: {error}") from error
    if not isinstance(state, dict):
        raise SourceError(f"{path}: is not what `datasets` saved: no JSON object")
    return state


def _names(found: Any, where: str) -> list[str]:
    """Return names out of a saved state, each one file or folder below its own."""
    names = [name for name in found if isinstance(name, str) and is_below(name)] if isinstance(found, list) else []
    if not names or len(names) != len(found):
        raise SourceError(f"{where}: does not name its files: is it what `datasets` saved?")
    return names


def _size_and_stamp(info: dict[str, Any]) -> tuple[int, str]:
    stamp = next((info[name] for name in STAMPS if info.get(name)), "")
    # The same time comes as a number in a listing and as a date for one file.
    stamp = stamp.timestamp() if isinstance(stamp, datetime) else stamp
    return int(info.get("size") or 0), str(stamp)


def _hint(address: str, error: Exception) -> str:
    package = INSTALL.get(address.partition("://")[0])
    return f"; install it: python -m pip install {package}" if package and isinstance(error, ImportError) else ""


@contextmanager
def _reaching(address: str) -> Generator[None]:
    """Turn what a store raises, of any type, into ``SourceError`` that names the address."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        words = shown_name(f"{type(error).__name__}: {error}"[:500])
        raise SourceError(f"{address}: cannot be reached: {words}{_hint(address, error)}") from error
