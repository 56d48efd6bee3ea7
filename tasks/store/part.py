"""One part of a table: a self-describing Parquet file with checksums.

The footer's metadata has the stage, its fingerprint, the counts, a hash (XXH3, 64 bits) of each
column chunk and a digest of the footer itself (blanked there). The chunks fill the file up to the
footer, so reading the whole file finds any flipped byte; reading a few rows or columns checks the
footer and the chunks that are decoded. Parquet's own page checksums leave out the page headers. The
bytes depend only on the rows.
"""

import hashlib
import mmap
import shlex
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder

ROWS_PER_GROUP = 100
GROUP_BYTES = 1 << 20
"""Maximum rows and bytes of a row group: few enough to read one row at little cost, enough to
compress text."""
PAGE_BYTES = 256 << 10
ROWS_PER_BATCH = 16
"""A page ends at the first batch that fills it; larger pages would not stay in the processor's
cache while copied."""
CHUNK_BYTES = 1 << 10  # reserved for the metadata of a column chunk
FOOTER_BYTES = 1 << 20  # reserved for the metadata of the part
DIGEST_BYTES = 16
TAIL_BYTES = 65536  # bytes of a file's end read first; most footers fit
MAGIC = b"PAR1"
SUM_DIGITS = 16  # hexadecimal digits of a chunk's hash
CHUNKS_KEY = b"pairwright.chunks"
CHECK_KEY = b"pairwright.check"
BLANK = b"0" * (2 * DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Part:
    """One part: the dataset's folder and the file below it."""

    folder: Folder
    name: str

    @property
    def path(self) -> str:
        """Return the path of the file, for messages."""
        return self.folder.path(self.name)


def encode_part(table: pa.Table, metadata: dict[str, str]) -> memoryview:
    """Return the bytes of a part that holds the table, with the metadata ``metadata``."""
    columns = _leaf_paths(table.schema)
    rows_per_group = max(1, min(ROWS_PER_GROUP, GROUP_BYTES * len(table) // max(1, table.nbytes)))
    starts = range(0, max(1, len(table)), rows_per_group)
    chunks = len(starts) * len(columns)
    # An upper bound of the bytes (each cell is stored once); unused pages take no memory.
    footer_bytes = FOOTER_BYTES + sum(len(value.encode()) for value in metadata.values())
    capacity = 2 * table.nbytes + chunks * CHUNK_BYTES + footer_bytes
    buffer = memoryview(pa.allocate_buffer(capacity)).cast("B")
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(buffer))
    with pq.ParquetWriter(sink, table.schema, **_writer_options(table.schema, columns)) as writer:
        for start in starts:
            writer.write_table(table.slice(start, rows_per_group))
        blanks = {
            CHUNKS_KEY.decode(): "0" * (SUM_DIGITS * chunks),
            CHECK_KEY.decode(): BLANK.decode(),
        }
        writer.add_key_value_metadata({**metadata, **blanks})
    data = buffer[: sink.tell()]
    _fill_blanks(data)
    return data


def _writer_options(schema: pa.Schema, columns: Sequence[str]) -> dict[str, Any]:
    images = {field.name for field in schema if _holds_images(field.type)}
    compression = {path: "none" if path.split(".")[0] in images else "zstd" for path in columns}
    return {
        "compression": compression,
        "use_dictionary": False,  # zstd finds repetitions
        "write_statistics": False,  # keys are random: no row group could be skipped
        "data_page_size": PAGE_BYTES,
        "write_batch_size": ROWS_PER_BATCH,
    }


def _holds_images(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds encoded images, which are not compressed again."""
    if pa.types.is_list(kind):
        kind = kind.value_type
    return pa.types.is_large_binary(kind)


def _fill_blanks(data: memoryview) -> None:
    """Overwrite the blanks in place: the chunks' hashes first, then the footer's digest."""
    start = _footer_start(data)
    ends = _chunk_ends(pq.read_metadata(pa.BufferReader(pa.py_buffer(data))), start)
    sums = b"".join(_sum(data[begin:end]) for begin, end in pairwise(ends))
    footer = bytes(data[start:])
    position = start + footer.rindex(b"0" * len(sums), 0, footer.rindex(CHECK_KEY))
    data[position : position + len(sums)] = sums
    position = start + _find_digest(footer)
    data[position : position + len(BLANK)] = _digest(data[start:])


@cache
def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the Parquet column paths ("prompt.list.element.text") of an Arrow schema."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(index).path for index in range(len(parquet))]


def _chunk_ends(metadata: pq.FileMetaData, footer_start: int) -> list[int]:
    """Return the start of the first column chunk and the end of each.

    They fill the file up to the footer.
    """
    ends = [len(MAGIC)]
    for group_number in range(metadata.num_row_groups):
        group = metadata.row_group(group_number)
        for column in range(metadata.num_columns):
            ends.append(ends[-1] + group.column(column).total_compressed_size)
    if ends[-1] != footer_start:
        raise ValueError(f"its columns end at byte {ends[-1]}, its footer starts at {footer_start}")
    return ends


def _sum(chunk: memoryview) -> bytes:
    return xxhash.xxh3_64_hexdigest(chunk).encode()


def _digest(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest().encode()


def _find_digest(footer: bytes | bytearray) -> int:
    """Return the position of the digest in a footer: the last key of that name is the real one."""
    position = footer.rfind(CHECK_KEY)
    if position < 0:
        raise ValueError("its footer has no digest")
    return position + len(CHECK_KEY) + 2  # Thrift's header of the value, and its length


def _footer_start(data: bytes | bytearray | memoryview) -> int:
    (size,) = struct.unpack("<I", data[-8:-4])
    return len(data) - 8 - size


class OpenPart:
    """Open part: its footer is checked on opening, every column chunk before it is decoded."""

    def __init__(self, file: BinaryIO) -> None:
        """Read and check the footer."""
        self._file = file
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        tail = file.read()
        if len(tail) >= 12 and _footer_start(tail) < 0:
            file.seek(max(0, size - len(tail) + _footer_start(tail)))
            tail = file.read()
        start = _check_footer(tail)
        metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(tail))
        self._metadata = metadata
        self._ends = _chunk_ends(metadata, size - len(tail) + start)
        self._sums: bytes = metadata.metadata[CHUNKS_KEY]
        paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        self._names = [path.split(".")[0] for path in paths]
        self.names = list(dict.fromkeys(self._names))
        pairs: dict[bytes, bytes] = metadata.metadata
        internal = (b"ARROW:schema", CHUNKS_KEY, CHECK_KEY)
        self.about = {
            key.decode(): value.decode() for key, value in pairs.items() if key not in internal
        }
        """Metadata of the part (stage, fingerprint, counts, versions)."""
        self.rows_per_group = max(1, metadata.row_group(0).num_rows)
        """Rows of each row group but the last."""
        self._image = mmap.mmap(-1, size)  # as large as the file; only the bytes read take memory

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return all or some row groups, with all or some of their columns."""
        if groups is None:
            groups = range(self._metadata.num_row_groups)
        for group in groups:
            for number, name in enumerate(self._names):
                if columns is None or name in columns:
                    self._fetch(group * len(self._names) + number)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._image)), metadata=self._metadata)
        names = None if columns is None else list(columns)
        return file.read_row_groups(groups, columns=names, use_threads=False)

    def verify(self) -> None:
        """Check every byte outside the footer."""
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            raise ValueError("its start is not that of a Parquet file")
        for chunk in range(len(self._ends) - 1):
            self._fetch(chunk)

    def _fetch(self, chunk: int) -> None:
        """Read a column chunk to its position in the image and check it."""
        start = self._ends[chunk]
        end = self._ends[chunk + 1]
        target = memoryview(self._image)[start:end]
        self._file.seek(start)
        expected = self._sums[SUM_DIGITS * chunk : SUM_DIGITS * (chunk + 1)]
        size = self._file.readinto(target)  # pyright: ignore[reportAttributeAccessIssue]
        if size != len(target) or _sum(target) != expected:
            raise ValueError(f"bytes {start} to {end} do not match the hash in its footer")


def _check_footer(tail: bytes) -> int:
    """Return the start of the footer in the tail of a file."""
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise ValueError("its end is not that of a Parquet file (cut off?)")
    start = _footer_start(tail)
    if start < 0:
        raise ValueError("its footer has an impossible length")
    footer = bytearray(tail[start:])
    position = _find_digest(footer)
    digest_slice = slice(position, position + len(BLANK))
    expected = bytes(footer[digest_slice])
    footer[digest_slice] = BLANK
    if _digest(footer) != expected:
        raise ValueError("its footer does not match its digest")
    return start


def read_part(part: Part) -> pa.Table:
    """Return the table of a part; ``StoreError`` if a byte of the file has changed."""
    with open_part(part) as file:
        file.verify()
        return file.read()


def read_part_columns(part: Part, columns: Sequence[str]) -> tuple[pa.Table, dict[str, str]]:
    """Return those of the columns that the part has, and its metadata; little else is read."""
    with open_part(part) as file:
        existing = [name for name in columns if name in file.names]
        return file.read(existing), file.about


def read_positions(
    part: Part, rows: Sequence[int], columns: Sequence[str] | None = None
) -> pa.Table:
    """Return the rows at some positions (sorted, distinct), reading only their row groups."""
    with open_part(part) as file:
        size = file.rows_per_group
        groups = sorted({row // size for row in rows})
        starts = {group: index * size for index, group in enumerate(groups)}
        table = file.read(columns, groups)
        positions = [starts[row // size] + row % size for row in rows]
        return table.take(pa.array(positions, pa.int64()))


def read_about(part: Part) -> dict[str, str]:
    """Return the metadata of the part (stage, fingerprint, counts, versions)."""
    with open_part(part) as file:
        return file.about


@contextmanager
def open_part(part: Part) -> Generator[OpenPart]:
    """Open a part to read some of it."""
    try:
        with part.folder.open_for_reading(part.name) as file:
            opened = OpenPart(file)
            name = part.name.rpartition("/")[2]
            written_name = opened.about.get("name", name)  # parts of earlier releases have none
            if written_name != name:
                raise ValueError(f"it was written as {written_name}")
            yield opened
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        command = f"pairwright resume {shlex.quote(part.folder.url)}"
        raise StoreError(
            f"{part.path}: the part is missing. Make its rows again: {command}"
        ) from error
    except (ValueError, KeyError, OSError, IndexError, struct.error, pa.ArrowException) as error:
        # Arrow's own errors are OSErrors without a number.
        if isinstance(error, OSError) and error.errno:
            cause = error.strerror or error
            raise StoreError(f"{part.path}: could not be read: {cause}") from error
        raise StoreError(
            f"{part.path}: the part is damaged: {error}. Delete it and run `pairwright resume` to "
            "make its rows again."
        ) from error


def describe_part(name: str, table: pa.Table, *, version: int) -> dict[str, str]:
    """Return the metadata of a part of this name ("tables/STAGE/FINGERPRINT/part-...")."""
    _, stage, fingerprint, file = name.split("/")
    counts = {"rows": len(table), "ok": 0, "dropped": 0, "failed": 0, **count_statuses(table)}
    metadata = {
        "name": file,
        "stage": stage,
        "fingerprint": fingerprint,
        "version": str(version),
    }
    for key, count in counts.items():
        metadata[key] = str(count)
    return metadata


def count_statuses(table: pa.Table) -> dict[str, int]:
    """Return the number of rows by status, for the part's metadata."""
    counts = table.column("status").value_counts().to_pylist()
    return {item["values"]: item["counts"] for item in counts}
