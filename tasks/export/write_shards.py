"""Write rows to Parquet files of limited size, split by split, a row group at a time.

``train-00000-of-00003.parquet``: how many files there are is known at the end only, so they get their names then.
Images are stored as they are (they are compressed already, and so one can be read without its neighbours); text is
compressed. Row groups hold 100 rows, or fewer where images are large: that is the memory that is needed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.tasks.export.form import BYTES_PER_FILE, SPLITS, Sizes

ROWS_PER_GROUP = 100
BYTES_PER_GROUP = 64 << 20
VALUES_PER_BATCH = 32
"""After so many values a page is looked at: of images, the usual 1,024 fill pages of 80 MB, which no cache holds."""
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@dataclass(frozen=True)
class Layout:
    """Say what the columns of the files are."""

    schema: pa.Schema

    @cached_property
    def images(self) -> tuple[str, ...]:
        """Return the columns that hold images, or lists of them."""
        return tuple(field.name for field in self.schema if IMAGES in (field.type, _inner(field.type)))

    def size_of(self, record: dict[str, Any]) -> int:
        """Return the bytes of a record's images."""
        return sum(len(image["bytes"]) for name in self.images for image in _each(record[name]))


def _inner(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_list(kind) else kind


def _each(cell: Any) -> Iterator[dict[str, Any]]:
    yield from cell if isinstance(cell, list) else [cell]


class SplitWriters:
    """Take records of every split; use as a context manager."""

    def __init__(self, folder: Path, schema: pa.Schema, *, bytes_per_file: int = BYTES_PER_FILE) -> None:
        """Write below ``folder``; no file is made before a split's first record."""
        layout = Layout(schema)
        self._writers = {split: SplitWriter(folder, split, layout, bytes_per_file=bytes_per_file) for split in SPLITS}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for writer in self._writers.values():
            self._stack.enter_context(writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(self, split: str, record: dict[str, Any]) -> None:
        """Take one record."""
        self._writers[split].add(record)

    def sizes(self) -> Sizes:
        """Return rows and bytes of each split that has any; complete once closed."""
        return {split: (writer.rows, writer.size_bytes) for split, writer in self._writers.items() if writer.rows}


class SplitWriter:
    """Take the records of one split; use as a context manager."""

    def __init__(self, folder: Path, split: str, layout: Layout, *, bytes_per_file: int = BYTES_PER_FILE) -> None:
        """Write below ``folder``; no file is made before the first record."""
        self.folder, self.split = folder, split
        self.rows = 0
        self.size_bytes = 0
        """Bytes of all files; complete once closed."""
        self._layout = layout
        self._bytes_per_file = bytes_per_file
        self._waiting: list[dict[str, Any]] = []
        self._waiting_bytes = 0
        self._file_bytes = 0
        self._files: list[Path] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._write_group()
        self._close_file()
        if error is None:
            self._name_files()

    def add(self, record: dict[str, Any]) -> None:
        """Take one record."""
        size = self._layout.size_of(record)
        if self._waiting_bytes + size > BYTES_PER_GROUP:
            self._write_group()
        self._waiting.append(record)
        self._waiting_bytes += size
        self.rows += 1
        if len(self._waiting) == ROWS_PER_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer and self._file_bytes + self._waiting_bytes > self._bytes_per_file:
            self._close_file()
        writer = self._writer or self._open_file()
        table = pa.Table.from_pylist(self._waiting, schema=self._layout.schema)
        writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self._file_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _open_file(self) -> pq.ParquetWriter:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files.append(self.folder / f"{self.split}-{len(self._files):05d}.unfinished")
        self._writer = pq.ParquetWriter(self._files[-1], self._layout.schema, **parquet_options(self._layout))
        return self._writer

    def _close_file(self) -> None:
        if self._writer:
            self._writer.close()
            self.size_bytes += self._files[-1].stat().st_size
        self._writer, self._file_bytes = None, 0

    def _name_files(self) -> None:
        for number, path in enumerate(self._files):
            path.rename(path.with_name(f"{self.split}-{number:05d}-of-{len(self._files):05d}.parquet"))


def parquet_options(layout: Layout) -> dict[str, Any]:
    """Return how columns are stored: images plain, text compressed."""
    sink = pa.BufferOutputStream()
    pq.write_table(layout.schema.empty_table(), sink)
    schema = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = [schema.column(index).path for index in range(len(schema))]
    texts = [path for path in paths if path.split(".")[0] not in layout.images]
    return {
        "compression": {path: "zstd" if path in texts else "none" for path in paths},
        "use_dictionary": texts,
        "write_statistics": texts,
        "write_page_index": True,
        "write_batch_size": VALUES_PER_BATCH,
    }
