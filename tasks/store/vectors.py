"""Vectors of all live images: one matrix per embedder, mapped into memory by searching stages.

Size per image: 2 bytes per dimension (float16), 4 for the norm and 32 for the key, on disk and
shared by all workers.
"""

import os
import shutil
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import EmbeddingRow, make_key
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import Index, open_index
from pairwright.tasks.store.scratch import made

KEY_TYPE = "S32"
ORDER = "embedders.txt"


@dataclass(frozen=True)
class Vectors:
    """Unit vectors of one embedder, sorted by image key."""

    keys: NDArray[np.bytes_]  # (N,) image keys as 32 ASCII bytes
    matrix: NDArray[np.float16]  # (N, d) unit vectors
    norms: NDArray[np.float32]  # (N,) lengths before normalisation
    # index of the matrix, which any worker may make for all; deleted with the matrix
    index: Path | None = None

    def rows_of(self, keys: Iterable[str]) -> NDArray[np.int64]:
        """Return the row of each key, in their order; ``KeyError`` if an image has no vector."""
        rows, are_there = self._find_rows(keys)
        if not are_there.all():
            raise KeyError("an image has no vector")
        return rows

    def hold(self, keys: Iterable[str]) -> NDArray[np.bool_]:
        """Return which keys have a vector, in their order."""
        return self._find_rows(keys)[1]

    def _find_rows(self, keys: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the row where each key is or would be, and whether it is there."""
        queries = np.array([key.encode() for key in keys], dtype=KEY_TYPE)
        rows = np.searchsorted(self.keys, queries)
        if not len(self.keys):
            return rows, np.zeros(len(queries), dtype=bool)
        inside = np.minimum(rows, len(self.keys) - 1)
        return rows, self.keys[inside] == queries

    def units_of(self, keys: Iterable[str]) -> NDArray[np.float64] | None:
        """Return the vector of each image, normalised again; ``None`` if one has none."""
        try:
            rows = self.rows_of(keys)
        except KeyError:
            return None
        return to_units(self.matrix[rows])

    def select(self, kept: NDArray[np.bool_]) -> "Vectors":
        """Return the vectors of some images; mapped from a copy beside the others on disk."""
        if kept.all():
            return self
        if self.index is None:
            return Vectors(self.keys[kept], self.matrix[kept], self.norms[kept])
        folder = self.index / make_key(np.packbits(kept).tobytes())
        if not folder.exists():
            new = folder.with_name(uuid.uuid4().hex)
            with naming(str(new), "written"):
                new.mkdir(parents=True)
                arrays = {"keys": self.keys, "matrix": self.matrix, "norms": self.norms}
                for kind, array in arrays.items():
                    np.save(new / f"{kind}.npy", array[kept])
                try:
                    new.rename(folder)
                except OSError:
                    if not folder.exists():
                        raise
                    shutil.rmtree(new)  # another worker made the same
        arrays = [_load_array(folder / f"{kind}.npy") for kind in ("keys", "matrix", "norms")]
        return Vectors(*arrays, index=folder)


def to_units(vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return unit vectors ``(n, d)`` normalised again: float16 leaves them longer or shorter."""
    precise = vectors.astype(np.float64)
    norms = np.linalg.norm(precise, axis=1, keepdims=True)
    return precise / np.maximum(norms, np.finfo(np.float32).tiny)


@dataclass
class _NewMatrix:
    """Mapped files of an embedder that are being filled."""

    matrix: NDArray[np.float16]
    norms: NDArray[np.float32]
    filled: int = 0


def write_vectors(folder: Path, index: Index) -> None:
    """Write one matrix per embedder from the live rows of an embeddings table, part by part."""
    folder.mkdir(parents=True)
    keys = index.subjects
    new: dict[str, _NewMatrix] = {}
    for table in index.part_tables(["subject", "embedder", "vector", "norm"]):
        # Embedders come in the order of each image's vectors.
        for name in table.column("embedder").unique().to_pylist():
            rows = table.filter(pc.field("embedder") == name)
            flat = rows.column("vector").combine_chunks().flatten().to_numpy()
            vectors = flat.reshape(len(rows), -1)
            if name not in new:
                new[name] = _open_new(folder, name, count=len(keys), size=vectors.shape[1])
            subjects = [key.encode() for key in rows.column("subject").to_pylist()]
            positions = np.searchsorted(keys, np.array(subjects, dtype=KEY_TYPE))
            new[name].matrix[positions] = vectors
            new[name].norms[positions] = rows.column("norm").to_numpy()
            new[name].filled += len(positions)
    for name, files in new.items():
        missing = len(keys) - files.filled
        if missing:
            raise StoreError(
                f"{index.table}: {missing} images have no {name} vector: run `pairwright resume`"
            )
        np.save(folder / f"{name}.keys.npy", keys)
    (folder / ORDER).write_text("\n".join(new))


def _open_new(folder: Path, name: str, *, count: int, size: int) -> _NewMatrix:
    matrix = map_new(folder / f"{name}.matrix.npy", np.float16, (count, size))
    norms = map_new(folder / f"{name}.norms.npy", np.float32, (count,))
    return _NewMatrix(matrix, norms)


def add_vectors(folder: Path, rows: Iterable[EmbeddingRow]) -> None:
    """Add the vectors of new subjects to their embedders' matrices, if there are any.

    No process may have one of the matrices open.
    """
    rows_of: dict[str, dict[bytes, EmbeddingRow]] = {}
    for row in rows:
        rows_of.setdefault(row.embedder, {})[row.subject.encode()] = row
    for name, vectors in open_vectors(folder).items():
        _insert_vectors(folder, name, vectors, rows_of.get(name, {}))


def _insert_vectors(
    folder: Path, name: str, vectors: Vectors, rows: Mapping[bytes, EmbeddingRow]
) -> None:
    keys = np.setdiff1d(np.array(list(rows), dtype=KEY_TYPE), vectors.keys)
    added = [rows[key] for key in keys.tolist()]
    if not added:
        return
    positions = np.searchsorted(vectors.keys, keys)
    new_vectors = [row.vector for row in added]
    new_norms = [row.norm for row in added]
    arrays = {
        "keys": np.insert(vectors.keys, positions, keys),
        "matrix": np.insert(vectors.matrix, positions, new_vectors, axis=0),
        "norms": np.insert(vectors.norms, positions, new_norms),
    }
    for kind, array in arrays.items():
        np.save(folder / f"{name}.{kind}.npy", array)


def place_vectors(folder: Folder, name: str, *, table: str) -> Path:
    """Return the folder of a table's vectors, by its index file ``name``; made now if missing."""

    def write_new(new: Path) -> None:
        write_vectors(new, open_index(folder, name, table))

    return made(folder, name, Path(name).stem, write_new)


def map_new(path: Path, kind: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Map a new array's file.

    Its disk space is allocated now, since a full disk kills a process that writes to a map.
    """
    array = np.lib.format.open_memmap(path, "w+", dtype=kind, shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def open_vectors(folder: Path) -> dict[str, Vectors]:
    """Map every embedder's matrix into memory, in the order of the embedding stage's config."""
    vectors: dict[str, Vectors] = {}
    for name in (folder / ORDER).read_text().splitlines():
        keys = _load_array(folder / f"{name}.keys.npy")
        matrix = _load_array(folder / f"{name}.matrix.npy")
        norms = _load_array(folder / f"{name}.norms.npy")
        vectors[name] = Vectors(keys, matrix, norms, index=folder / f"{name}.index")
    return vectors


def _load_array(path: Path) -> NDArray[Any]:
    """Load a small array, map a larger one."""
    is_small = path.stat().st_size <= 4096
    return np.load(path, mmap_mode=None if is_small else "r")
