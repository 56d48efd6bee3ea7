"""Keep the finished rows of a running shard, so that a killed process repeats seconds of work.

A journal is an append-only file of records: length, CRC-32, then one Arrow record batch. A torn or damaged tail is cut
off. The rows of the last input in it may be incomplete, so that input is done again; all others are finished.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from filelock import FileLock

from schemas.arrow import schema_of, to_table
from schemas.rows import Dropped, Failed, Row
from tasks.store.files import naming

HEADER = struct.Struct("<II")


class Journal:
    """Append rows to a shard's journal and read back those of a killed run. Local disks only."""

    def __init__(self, path: Path, row_type: type[Row]) -> None:
        """Name the file; nothing is read or written yet."""
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))
        self._schema = schema_of(row_type)
        self._row_type = row_type
        self._file = -1

    def read(self) -> pa.Table:
        """Return the rows of all finished inputs of the run before, in the order in which they came."""
        if not self.path.exists():
            return self._schema.empty_table()
        with naming(str(self.path), "read"):
            data = self.path.read_bytes()
        batches = [pa.ipc.read_record_batch(pa.py_buffer(record), self._schema) for record in _whole_records(data)]
        table = pa.Table.from_batches(batches, self._schema)
        sources = table.column("source_key").to_pylist()
        finished = next((i for i in range(len(sources) - 1, -1, -1) if sources[i] != sources[-1]), -1) + 1
        return table.slice(0, finished)

    def restart(self, rows: pa.Table) -> None:
        """Begin a journal that holds these rows (what ``read`` returned) and nothing else."""
        with naming(str(self.path), "written"):
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for batch in rows.to_batches():
            self._write(batch)

    def append(self, results: Sequence[Row | Dropped | Failed]) -> None:
        """Add rows; they survive a kill of this process at once (a loss of power may lose the newest)."""
        for batch in to_table(results, self._row_type).to_batches():
            self._write(batch)

    def _write(self, batch: pa.RecordBatch) -> None:
        payload = batch.serialize().to_pybytes()
        rest = memoryview(HEADER.pack(len(payload), zlib.crc32(payload)) + payload)
        with naming(str(self.path), "written"):
            while rest:
                rest = rest[os.write(self._file, rest) :]

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()  # an orphan of a killed build may still be writing
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._lock.release()

    def delete(self) -> None:
        """Remove the file, once the shard's part is in place."""
        self.path.unlink(missing_ok=True)
        Path(self._lock.lock_file).unlink(missing_ok=True)


def _whole_records(data: bytes) -> list[bytes]:
    records: list[bytes] = []
    place = 0
    while place + HEADER.size <= len(data):
        size, check = HEADER.unpack_from(data, place)
        record = data[place + HEADER.size : place + HEADER.size + size]
        if len(record) != size or zlib.crc32(record) != check:
            break
        records.append(record)
        place += HEADER.size + size
    return records
