"""Keep the finished rows of a running shard, so that a killed process repeats seconds of work.

A journal is an append-only file of records: length, CRC-32 (begun with that of the rows' schema), then one Arrow record
batch. A torn or damaged tail, and records of rows of another form, are left out. The rows of the last input in it may
be incomplete, so that input is done again, as are inputs that failed; all others are finished. For this, a stage with a
journal gives all results of one input before those of the next.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from filelock import FileLock

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.rows import Row
from pairwright.tasks.store.files import naming

HEADER = struct.Struct("<II")


class Journal:
    """Append rows to a shard's journal and read back those of a killed run. Local disks only."""

    def __init__(self, path: Path, row_type: type[Row]) -> None:
        """Name the file; nothing is read or written yet."""
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"))
        self._schema = schema_of(row_type)
        self._seed = zlib.crc32(self._schema.serialize())
        self._file = -1

    def read(self) -> pa.Table:
        """Return the rows of all finished inputs of the run before, in the order in which they came."""
        if not self.path.exists():
            return self._schema.empty_table()
        with naming(str(self.path), "read"):
            data = self.path.read_bytes()
        batches = [pa.ipc.read_record_batch(pa.py_buffer(record), self._schema) for record in self._records(data)]
        return _finished(pa.Table.from_batches(batches, self._schema))

    def restart(self, rows: pa.Table) -> None:
        """Begin a journal that holds these rows (what ``read`` returned) and nothing else."""
        new = self.path.with_suffix(".new")  # a kill in here leaves the old journal
        with naming(str(self.path), "written"):
            self._file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            self.append(rows)
            os.replace(new, self.path)  # noqa: PTH105  (one seam for every system call of a write)

    def append(self, rows: pa.Table) -> None:
        """Add rows; they survive a kill of this process at once (a loss of power may lose the newest)."""
        for batch in rows.to_batches():
            payload = batch.serialize().to_pybytes()
            rest = memoryview(HEADER.pack(len(payload), zlib.crc32(payload, self._seed)) + payload)
            with naming(str(self.path), "written"):
                while rest:
                    rest = rest[os.write(self._file, rest) :]

    def _records(self, data: bytes) -> Iterator[bytes]:
        place = 0
        while place + HEADER.size <= len(data):
            size, check = HEADER.unpack_from(data, place)
            record = data[place + HEADER.size : place + HEADER.size + size]
            if len(record) != size or zlib.crc32(record, self._seed) != check:
                return
            yield record
            place += HEADER.size + size

    def __enter__(self) -> Self:
        with naming(str(self.path), "opened"):
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
        with naming(str(self.path), "deleted"):
            self.path.unlink(missing_ok=True)
            Path(self._lock.lock_file).unlink(missing_ok=True)


def _finished(rows: pa.Table) -> pa.Table:
    """Leave out the rows of the last input, and of those that failed."""
    if not len(rows):
        return rows
    sources, statuses = rows.column("source_key").to_pylist(), rows.column("status").to_pylist()
    unfinished = {
        sources[-1],
        *(source for source, status in zip(sources, statuses, strict=True) if status == "failed"),
    }
    kept = [place for place, source in enumerate(sources) if source not in unfinished]
    return rows.take(pa.array(kept, pa.int64()))
