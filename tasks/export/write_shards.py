"""Write the rows of one split to Parquet files of limited size, a row group at a time.

``data/train-00000-of-00003.parquet``: how many files there are is known at the end only, so they get their names then.
Images are stored as they are (they are compressed already, and so one can be read without its neighbours); text is
compressed. Row groups hold 100 rows, or fewer where images are large: that is the memory that is needed.
"""

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.export.hf_schema import SCHEMA

ROWS_PER_GROUP = 100
BYTES_PER_GROUP = 64 << 20
BYTES_PER_FILE = 500 << 20
IMAGE_COLUMNS = ("images", "rejected_images")


class SplitWriter:
    """Take the records of one split; use as a context manager."""

    def __init__(self, folder: Path, split: str, *, bytes_per_file: int = BYTES_PER_FILE) -> None:
        """Write below ``folder``; no file is made before the first record."""
        self.folder, self.split = folder, split
        self.rows = 0
        self.size_bytes = 0
        """Bytes of all files; complete once closed."""
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
        size = sum(len(image["bytes"]) for name in IMAGE_COLUMNS for image in record[name])
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
        writer.write_table(pa.Table.from_pylist(self._waiting, schema=SCHEMA), row_group_size=ROWS_PER_GROUP)
        self._file_bytes += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def _open_file(self) -> pq.ParquetWriter:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files.append(self.folder / f"{self.split}-{len(self._files):05d}.unfinished")
        self._writer = pq.ParquetWriter(self._files[-1], SCHEMA, **parquet_options())
        return self._writer

    def _close_file(self) -> None:
        if self._writer:
            self._writer.close()
            self.size_bytes += self._files[-1].stat().st_size
        self._writer, self._file_bytes = None, 0

    def _name_files(self) -> None:
        for number, path in enumerate(self._files):
            path.rename(path.with_name(f"{self.split}-{number:05d}-of-{len(self._files):05d}.parquet"))


def parquet_options() -> dict[str, Any]:
    """Return how columns are stored: images plain, text compressed."""
    sink = pa.BufferOutputStream()
    pq.write_table(SCHEMA.empty_table(), sink)
    schema = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    paths = [schema.column(index).path for index in range(len(schema))]
    texts = [path for path in paths if path.split(".")[0] not in IMAGE_COLUMNS]
    return {
        "compression": {path: "zstd" if path in texts else "none" for path in paths},
        "use_dictionary": texts,
        "write_statistics": texts,
        "write_page_index": True,
    }
