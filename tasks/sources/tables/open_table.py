"""Open one table and read its rows one by one, in bounded memory: Parquet, or the Arrow files that ``datasets`` saves.

Needs pyarrow. Files are hostile: a count of rows is believed only within what the file could hold, Arrow buffers are
validated before they are touched, and rows are decoded singly, so that a small file cannot unfold to many large values
at once. What remains in memory is a page of a Parquet file, which is as large as its writer made it (2 GB at the most).
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

BUFFER_BYTES = 4 << 20
"""What is read of a column at once."""


class DamagedTableError(ValueError):
    """Say that a file is no table, or a damaged one."""


class Table(Protocol):
    """Be one open table: groups of rows, of which only the wanted columns are read."""

    @property
    def schema(self) -> pa.Schema:
        """Return its columns."""
        ...

    def group_rows(self) -> list[int]:
        """Return how many rows each group has, without reading data."""
        ...

    def read_group(self, group: int, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a group, ascending, each as a batch of one."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class ParquetTable:
    """Read a Parquet file, a column chunk in pieces of ``BUFFER_BYTES``."""

    def __init__(self, file: Any, size: int) -> None:
        """Read the footer."""
        self._size = size
        # Without pre_buffer, columns are streamed; with it, a whole row group would be fetched first.
        self._file = pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=BUFFER_BYTES, pre_buffer=False)

    @property
    def schema(self) -> pa.Schema:
        """Return its columns."""
        return self._file.schema_arrow

    def group_rows(self) -> list[int]:
        """Return how many rows each row group has, from the footer."""
        meta = self._file.metadata
        return _believed([meta.row_group(group).num_rows for group in range(meta.num_row_groups)], self._size)

    def read_group(self, group: int, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a row group, read from its beginning to the last of them."""
        wanted = iter(rows)
        row = next(wanted, -1)
        batches = self._file.iter_batches(1, row_groups=[group], columns=list(columns), use_threads=False)
        for number, batch in enumerate(batches):
            if number == row:
                yield batch
                if (row := next(wanted, -1)) < 0:
                    return
        if row >= 0:
            raise DamagedTableError(f"the row group has no row {row}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ArrowTable:
    """Map an Arrow IPC stream or file of a local disk into memory; its record batches are the groups."""

    def __init__(self, path: bytes, size: int) -> None:
        """Map the file and read its schema."""
        self._size = size
        self._map = pa.memory_map(path)
        self._is_file = self._map.read(6) == b"ARROW1"
        self._schema = self._open().schema

    @property
    def schema(self) -> pa.Schema:
        """Return its columns."""
        return self._schema

    def group_rows(self) -> list[int]:
        """Return how many rows each record batch has; their data stay on the disk."""
        rows: list[int] = []
        for batch in self._batches():
            batch.validate()
            rows.append(batch.num_rows)
        return _believed(rows, self._size)

    def read_group(self, group: int, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a record batch."""
        batch = next((batch for number, batch in enumerate(self._batches()) if number == group), None)
        if batch is None:
            raise DamagedTableError(f"there is no record batch {group}")
        chosen = batch.select(list(columns))
        chosen.validate()
        for row in rows:
            if row >= chosen.num_rows:
                raise DamagedTableError(f"the record batch has no row {row}")
            yield chosen.slice(row, 1)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def _open(self) -> Any:
        self._map.seek(0)
        return pa.ipc.open_file(self._map) if self._is_file else pa.ipc.open_stream(self._map)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        reader = self._open()
        if self._is_file:
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            yield from reader


def to_record(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the row of a batch of one as Python values."""
    # Arrow's own files are not checked when they are read: offsets that point outside would end the process.
    batch.validate(full=True)
    return batch.to_pylist()[0]


def _believed(rows: list[int], size: int) -> list[int]:
    """Refuse counts that a file of this size cannot hold: each would be listed as an item."""
    if any(count < 0 for count in rows) or sum(rows) > size:
        raise DamagedTableError(f"{sum(rows)} rows in {size} bytes")
    return rows
