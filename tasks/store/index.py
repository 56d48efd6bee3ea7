"""Find the live rows of a table by their subjects.

An index is an Arrow file, sorted by subject, with each live row's part and position; workers map it
into memory, so that it costs no memory per process. 24 bytes and the file's padding per row.
"""

from binascii import hexlify
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairwright.schemas.arrow import R, from_table, schema_of
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import ROWS_PER_GROUP, Part, read_rows
from pairwright.tasks.store.scratch import copy_of

PARTS = b"parts"
SCHEMA = pa.schema([("subject", pa.binary(16)), ("part", pa.int32()), ("row", pa.int32())])


@dataclass(frozen=True)
class Index:
    """Index of one table's live rows; ``subjects`` are sorted, ``names`` are the files of its parts."""

    folder: Folder
    table: str  # folder of the table, below the dataset's
    names: tuple[str, ...]
    entries: pa.Table

    @cached_property
    def _subjects(self) -> NDArray[np.bytes_]:
        """Return the subjects, a view of the mapped file."""
        if not len(self.entries):
            return np.empty(0, dtype="S16")
        column = self.entries.column("subject").chunk(0)
        return np.frombuffer(column.buffers()[1], dtype="S16", count=len(column))

    @cached_property
    def _places(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return self.entries.column("part").to_numpy(), self.entries.column("row").to_numpy()

    def find(self, subjects: Iterable[str]) -> NDArray[np.int64]:
        """Return the positions in the index of every row about one of the subjects."""
        wanted = np.frombuffer(
            b"".join(bytes.fromhex(s) for s in sorted(set(subjects))), dtype="S16"
        )
        low, high = (
            np.searchsorted(self._subjects, wanted, side=side) for side in ("left", "right")
        )
        ranges = [
            np.arange(start, stop) for start, stop in zip(low, high, strict=True) if stop > start
        ]
        return np.concatenate([np.empty(0, np.int64), *ranges])

    def rows(
        self,
        positions: Sequence[int] | NDArray[np.int64],
        row_type: type[R],
        columns: Sequence[str],
    ) -> Iterator[R]:
        """Yield the rows at these positions of the index, part by part, reading each row group once."""
        for number, places in self.places(positions):
            yield from from_table(read_rows(self.part(number), places.tolist(), columns), row_type)

    def places(
        self, positions: Sequence[int] | NDArray[np.int64] | None = None
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield each part's number with the rows there, sorted, of all or some positions of the index."""
        parts, rows = self._places
        order = self.order() if positions is None else np.asarray(positions, dtype=np.int64)
        order = order[np.lexsort((rows[order], parts[order]))]
        for number in np.unique(parts[order]):
            yield int(number), rows[order[parts[order] == number]]

    def tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all live rows, one table per part."""
        for number, places in self.places():
            yield read_rows(self.part(number), places.tolist(), columns)

    def order(self) -> NDArray[np.int64]:
        """Return the positions of all live rows in the order of the parts, so that each byte is read once."""
        parts, rows = self._places
        return np.lexsort((rows, parts))

    def batches(
        self, columns: Sequence[str], chosen: NDArray[np.int64] | None = None
    ) -> Iterator[pa.Table]:
        """Yield some columns of all live rows in the order of the parts, one table per row group."""
        parts, rows = self._places
        order = self.order() if chosen is None else chosen
        groups = np.stack([parts[order], rows[order] // ROWS_PER_GROUP], axis=1)
        starts = np.flatnonzero(np.any(np.diff(groups, axis=0, prepend=-1), axis=1))
        for places in np.split(order, starts[1:]) if len(order) else []:
            yield read_rows(self.part(int(parts[places[0]])), rows[places].tolist(), columns)

    @cached_property
    def images(self) -> NDArray[np.bytes_]:
        """Return the distinct subjects of the rows, sorted, as 32 ASCII bytes each."""
        subjects = self._subjects
        first = np.ones(len(subjects), dtype=bool)
        first[1:] = subjects[1:] != subjects[:-1]
        return np.frombuffer(hexlify(subjects[first].tobytes()), dtype="S32")

    def part(self, number: int) -> Part:
        """Return one of the table's parts."""
        return Part(self.folder, f"{self.table}/{self.names[number]}")

    def __len__(self) -> int:
        return len(self.entries)


def columns_without(row_type: type[R], without: Iterable[str]) -> list[str]:
    """Return a row type's columns without some; status columns are not needed to make rows."""
    return [
        name
        for name in schema_of(row_type).names
        if name not in {*without, "status", "reason", "detail"}
    ]


def write_index(path: Path, entries: pa.RecordBatchReader, names: Sequence[str]) -> None:
    """Write an index file from entries sorted by subject."""
    schema = SCHEMA.with_metadata({PARTS: "\n".join(names).encode()})
    table = (
        entries.read_all().cast(SCHEMA).combine_chunks()
    )  # one batch, so that readers need no copy of it
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_table(table.replace_schema_metadata(schema.metadata))


@lru_cache(maxsize=64)
def open_index(folder: Folder, name: str, table: str) -> Index:
    """Open an index file, mapped into memory; of a dataset on an object store, this machine's copy of it."""
    return open_index_file(copy_of(folder, name), folder, table)


def open_index_file(path: Path, folder: Folder, table: str) -> Index:
    """Open an index file of this machine; it may be deleted afterwards."""
    entries = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    names = (entries.schema.metadata or {})[PARTS].decode()
    return Index(folder, table, tuple(names.split("\n")) if names else (), entries)
