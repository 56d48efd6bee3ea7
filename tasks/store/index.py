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
from pairwright.tasks.store.part import ROWS_PER_GROUP, Part, read_positions
from pairwright.tasks.store.scratch import copy_of

PARTS = b"parts"
SCHEMA = pa.schema([("subject", pa.binary(16)), ("part", pa.int32()), ("row", pa.int32())])


@dataclass(frozen=True)
class Index:
    """Index of one table's live rows, sorted by subject; ``names`` are the files of its parts."""

    folder: Folder
    table: str  # folder of the table, below the dataset's
    names: tuple[str, ...]  # in the table's folder; with a "/": below the dataset's
    entries: pa.Table

    @cached_property
    def _subjects(self) -> NDArray[np.bytes_]:
        """Return the subjects, a view of the mapped file."""
        if not len(self.entries):
            return np.empty(0, dtype="S16")
        column = self.entries.column("subject").chunk(0)
        return np.frombuffer(column.buffers()[1], dtype="S16", count=len(column))

    @cached_property
    def _parts(self) -> NDArray[np.int32]:
        return self.entries.column("part").to_numpy()

    @cached_property
    def _rows(self) -> NDArray[np.int32]:
        return self.entries.column("row").to_numpy()

    def find_positions(self, subjects: Iterable[str]) -> NDArray[np.int64]:
        """Return the positions in the index of every row about one of the subjects."""
        digests = [bytes.fromhex(subject) for subject in sorted(set(subjects))]
        queries = np.frombuffer(b"".join(digests), dtype="S16")
        starts = np.searchsorted(self._subjects, queries, side="left")
        stops = np.searchsorted(self._subjects, queries, side="right")
        ranges = [np.empty(0, np.int64)]
        for start, stop in zip(starts, stops, strict=True):
            if stop > start:
                ranges.append(np.arange(start, stop))
        return np.concatenate(ranges)

    def rows_at(
        self,
        positions: Sequence[int] | NDArray[np.int64],
        row_type: type[R],
        columns: Sequence[str],
    ) -> Iterator[R]:
        """Yield the rows at these positions, part by part, reading each row group once."""
        for number, rows in self.group_by_part(positions):
            table = read_positions(self.part(number), rows.tolist(), columns)
            yield from from_table(table, row_type)

    def group_by_part(
        self, positions: Sequence[int] | NDArray[np.int64] | None = None
    ) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """Yield each part's number with its sorted rows, of all or some positions of the index."""
        parts = self._parts
        rows = self._rows
        if positions is None:
            order = self.order()
        else:
            order = np.asarray(positions, dtype=np.int64)
        order = order[np.lexsort((rows[order], parts[order]))]
        for number in np.unique(parts[order]):
            of_part = order[parts[order] == number]
            yield int(number), rows[of_part]

    def part_tables(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all live rows, one table per part."""
        for number, rows in self.group_by_part():
            yield read_positions(self.part(number), rows.tolist(), columns)

    def order(self) -> NDArray[np.int64]:
        """Return the positions of all live rows in the order of the parts: each byte read once."""
        return np.lexsort((self._rows, self._parts))

    def batches(
        self, columns: Sequence[str], chosen: NDArray[np.int64] | None = None
    ) -> Iterator[pa.Table]:
        """Yield some columns of live rows in the order of the parts, one table per row group."""
        parts = self._parts
        rows = self._rows
        order = self.order() if chosen is None else chosen
        if not len(order):
            return
        groups = np.stack([parts[order], rows[order] // ROWS_PER_GROUP], axis=1)
        starts = np.flatnonzero(np.any(np.diff(groups, axis=0, prepend=-1), axis=1))
        for positions in np.split(order, starts[1:]):
            part = self.part(int(parts[positions[0]]))
            yield read_positions(part, rows[positions].tolist(), columns)

    @cached_property
    def subjects(self) -> NDArray[np.bytes_]:
        """Return the distinct subjects of the rows, sorted, as 32 ASCII bytes each."""
        subjects = self._subjects
        first = np.ones(len(subjects), dtype=bool)
        first[1:] = subjects[1:] != subjects[:-1]
        return np.frombuffer(hexlify(subjects[first].tobytes()), dtype="S32")

    def part(self, number: int) -> Part:
        """Return one of the table's parts."""
        name = self.names[number]
        return Part(self.folder, name if "/" in name else f"{self.table}/{name}")

    def __len__(self) -> int:
        return len(self.entries)


def columns_without(row_type: type[R], without: Iterable[str]) -> list[str]:
    """Return a row type's columns without some; status columns are not needed to make rows."""
    excluded = {*without, "status", "reason", "detail"}
    return [name for name in schema_of(row_type).names if name not in excluded]


def write_index(path: Path, entries: pa.RecordBatchReader, names: Sequence[str]) -> None:
    """Write an index file from entries sorted by subject."""
    schema = SCHEMA.with_metadata({PARTS: "\n".join(names).encode()})
    # one batch, so that readers need no copy of it
    table = entries.read_all().cast(SCHEMA).combine_chunks()
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_table(table.replace_schema_metadata(schema.metadata))


@lru_cache(maxsize=64)
def open_index(folder: Folder, name: str, table: str) -> Index:
    """Open an index file, mapped into memory: of an object store, this machine's copy."""
    return open_index_file(copy_of(folder, name), folder, table)


def open_index_file(path: Path, folder: Folder, table: str) -> Index:
    """Open an index file of this machine; it may be deleted afterwards."""
    entries = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    metadata = entries.schema.metadata or {}
    lines = metadata[PARTS].decode()
    names = tuple(lines.split("\n")) if lines else ()
    return Index(folder, table, names, entries)
