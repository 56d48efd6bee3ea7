"""Vectors of all live images as one matrix per embedder, mapped into memory by the stages that search them.

Size per image: 2 bytes per dimension (float16), 4 for the norm and 32 for the key, on disk and
shared by all workers.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import DTypeLike, NDArray

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import EmbeddingRow
from pairwright.tasks.store.files import Folder
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
    index: Path | None = (
        None  # index of the matrix, which any worker may make for all; deleted with the matrix
    )

    def rows_of(self, keys: Iterable[str]) -> NDArray[np.int64]:
        """Return the row of each image, in the order of the keys; ``KeyError`` if one has no vector."""
        wanted = np.array([key.encode() for key in keys], dtype=KEY_TYPE)
        rows = np.searchsorted(self.keys, wanted)
        inside = np.minimum(rows, max(len(self.keys) - 1, 0))
        if len(wanted) and (not len(self.keys) or not np.array_equal(self.keys[inside], wanted)):
            raise KeyError("an image has no vector")
        return rows

    def units_of(self, keys: Iterable[str]) -> NDArray[np.float64] | None:
        """Return the vector of each image, normalised again; ``None`` if one has none."""
        try:
            found = self.matrix[self.rows_of(keys)].astype(np.float64)
        except KeyError:
            return None
        return found / np.maximum(
            np.linalg.norm(found, axis=1, keepdims=True), np.finfo(np.float32).tiny
        )


def write_vectors(folder: Path, index: Index) -> None:
    """Write one matrix per embedder from the live rows of an embeddings table, part by part."""
    folder.mkdir(parents=True)
    keys = index.images
    filled: dict[str, int] = {}
    open_files: dict[str, tuple[NDArray[np.float16], NDArray[np.float32]]] = {}
    for table in index.tables(["subject", "embedder", "vector", "norm"]):
        names = (
            table.column("embedder").unique().to_pylist()
        )  # in the order of each image's vectors
        for name in names:
            own = table.filter(pc.field("embedder") == name)
            subjects = np.array(
                [key.encode() for key in own.column("subject").to_pylist()], dtype=KEY_TYPE
            )
            vectors = (
                own.column("vector").combine_chunks().flatten().to_numpy().reshape(len(own), -1)
            )
            if name not in open_files:
                matrix = map_new(
                    folder / f"{name}.matrix.npy", np.float16, (len(keys), vectors.shape[1])
                )
                open_files[name] = (
                    matrix,
                    map_new(folder / f"{name}.norms.npy", np.float32, (len(keys),)),
                )
            places = np.searchsorted(keys, subjects)
            matrix, norms = open_files[name]
            matrix[places], norms[places] = vectors, own.column("norm").to_numpy()
            filled[name] = filled.get(name, 0) + len(places)
    for name, count in filled.items():
        if count != len(keys):
            raise StoreError(
                f"{index.table}: {len(keys) - count} images have no {name} vector: run `pairwright resume`"
            )
        np.save(folder / f"{name}.keys.npy", keys)
    (folder / ORDER).write_text("\n".join(filled))


def add_vectors(folder: Path, rows: Iterable[EmbeddingRow]) -> None:
    """Add the vectors of new subjects to their embedders' matrices, if there are any; no process may have one open."""
    new = {(row.embedder, row.subject): row for row in rows}
    for name, held in open_vectors(folder).items():
        own = {
            subject.encode(): row
            for (embedder, subject), row in sorted(new.items())
            if embedder == name
        }
        keys = np.setdiff1d(np.array(list(own), dtype=KEY_TYPE), held.keys)
        places, added = np.searchsorted(held.keys, keys), [own[key] for key in keys.tolist()]
        if added:
            joined = {
                "keys": np.insert(held.keys, places, keys),
                "matrix": np.insert(held.matrix, places, [row.vector for row in added], axis=0),
                "norms": np.insert(held.norms, places, [row.norm for row in added]),
            }
            for what, array in joined.items():
                np.save(folder / f"{name}.{what}.npy", array)


def place_vectors(folder: Folder, name: str, *, table: str) -> Path:
    """Return the folder of a table's vectors, by its index file ``name``; made now if missing."""
    return made(
        folder,
        name,
        Path(name).stem,
        lambda new: write_vectors(new, open_index(folder, name, table)),
    )


def map_new(path: Path, kind: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """Map a new array's file; its disk space is allocated now: a full disk kills a process that writes to a map."""
    array = np.lib.format.open_memmap(path, "w+", dtype=kind, shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def open_vectors(folder: Path) -> dict[str, Vectors]:
    """Map every embedder's matrix in the folder into memory, in the order of the embedding stage's configuration."""
    found: dict[str, Vectors] = {}
    for name in (folder / ORDER).read_text().splitlines():
        files = (folder / f"{name}.{what}.npy" for what in ("keys", "matrix", "norms"))
        arrays = (
            np.load(file, mmap_mode=None if file.stat().st_size <= 4096 else "r") for file in files
        )
        found[name] = Vectors(*arrays, index=folder / f"{name}.index")
    return found
