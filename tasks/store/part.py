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

ROWS_PER_GROUP, GROUP_BYTES = 100, 1 << 20
"""Maximum rows and bytes of a row group: few enough to read one row at little cost, enough to
compress text."""
PAGE_BYTES, ROWS_PER_BATCH = 256 << 10, 16
"""A page ends at the first batch that fills it; larger pages would not stay in the processor's
cache while copied."""
CHUNK_BYTES, FOOTER_BYTES = (
    1 << 10,
    1 << 20,
)  # reserved for the metadata of a column chunk, and of the part
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


def encode_part(table: pa.Table, about: dict[str, str]) -> memoryview:
    """Return the bytes of a part that holds the table, with the metadata ``about``."""
    large = pa.types.is_large_binary
    images = {
        field.name
        for field in table.schema
        if large(field.type) or (pa.types.is_list(field.type) and large(field.type.value_type))
    }
    leaves = _leaf_paths(table.schema)
    options: dict[str, Any] = {
        "compression": {
            path: "none" if path.split(".")[0] in images else "zstd" for path in leaves
        },
        "use_dictionary": False,  # zstd finds repetitions
        "write_statistics": False,  # keys are random: no row group could be skipped
        "data_page_size": PAGE_BYTES,
        "write_batch_size": ROWS_PER_BATCH,
    }
    rows_per_group = max(1, min(ROWS_PER_GROUP, GROUP_BYTES * len(table) // max(1, table.nbytes)))
    starts = range(0, max(1, len(table)), rows_per_group)
    chunks = len(starts) * len(leaves)
    # An upper bound of the bytes (each cell is stored once); unused pages take no memory.
    footer = FOOTER_BYTES + sum(len(value.encode()) for value in about.values())
    room = memoryview(pa.allocate_buffer(2 * table.nbytes + chunks * CHUNK_BYTES + footer)).cast(
        "B"
    )
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(room))
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for start in starts:
            writer.write_table(table.slice(start, rows_per_group))
        blanks = {
            CHUNKS_KEY.decode(): "0" * (SUM_DIGITS * chunks),
            CHECK_KEY.decode(): BLANK.decode(),
        }
        writer.add_key_value_metadata({**about, **blanks})
    data = room[: sink.tell()]
    # The blanks are overwritten in place, with the chunks' hashes and then the footer's digest.
    start = _footer_start(data)
    ends = _chunk_ends(pq.read_metadata(pa.BufferReader(pa.py_buffer(data))), start)
    sums = b"".join(_sum(data[begin:end]) for begin, end in pairwise(ends))
    footer = bytes(data[start:])
    place = start + footer.rindex(b"0" * len(sums), 0, footer.rindex(CHECK_KEY))
    data[place : place + len(sums)] = sums
    place = start + _find_digest(footer)
    data[place : place + len(BLANK)] = _digest(data[start:])
    return data


@cache
def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the Parquet column paths ("prompt.list.element.text") of an Arrow schema."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    parquet = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(index).path for index in range(len(parquet))]


def _chunk_ends(metadata: pq.FileMetaData, footer_start: int) -> list[int]:
    """Return the start of the first column chunk and the end of each; they fill the file up to the footer."""
    ends = [len(MAGIC)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
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
    """Return the position of the digest in a footer; other metadata may imitate its key, but precede it."""
    place = footer.rfind(CHECK_KEY)
    if place < 0:
        raise ValueError("its footer has no digest")
    return place + len(CHECK_KEY) + 2  # Thrift's header of the value, and its length


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
        self._metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(tail))
        self._ends = _chunk_ends(self._metadata, size - len(tail) + start)
        self._sums: bytes = self._metadata.metadata[CHUNKS_KEY]
        schema = self._metadata.schema
        self._names = [
            schema.column(number).path.split(".")[0] for number in range(self._metadata.num_columns)
        ]
        self.names = list(dict.fromkeys(self._names))
        pairs: dict[bytes, bytes] = self._metadata.metadata
        own = (b"ARROW:schema", CHUNKS_KEY, CHECK_KEY)
        self.about = {
            key.decode(): value.decode() for key, value in pairs.items() if key not in own
        }
        """Metadata of the part (stage, fingerprint, counts, versions)."""
        self.rows_per_group = max(1, self._metadata.row_group(0).num_rows)
        """Rows of each row group but the last."""
        self._image = mmap.mmap(-1, size)  # as large as the file; only the bytes read take memory

    def read(
        self, columns: Sequence[str] | None = None, groups: Sequence[int] | None = None
    ) -> pa.Table:
        """Return all or some row groups, with all or some of their columns."""
        groups = range(self._metadata.num_row_groups) if groups is None else groups
        for group in groups:
            for number, name in enumerate(self._names):
                if columns is None or name in columns:
                    self._fetch(group * len(self._names) + number)
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(self._image)), metadata=self._metadata)
        return file.read_row_groups(
            groups, columns=None if columns is None else list(columns), use_threads=False
        )

    def check(self) -> None:
        """Check every byte outside the footer."""
        self._file.seek(0)
        if self._file.read(len(MAGIC)) != MAGIC:
            raise ValueError("its start is not that of a Parquet file")
        for chunk in range(len(self._ends) - 1):
            self._fetch(chunk)

    def _fetch(self, chunk: int) -> None:
        """Read a column chunk into its place and check it."""
        start, end = self._ends[chunk], self._ends[chunk + 1]
        place = memoryview(self._image)[start:end]
        self._file.seek(start)
        stated = self._sums[SUM_DIGITS * chunk : SUM_DIGITS * (chunk + 1)]
        if self._file.readinto(place) != len(place) or _sum(place) != stated:  # pyright: ignore[reportAttributeAccessIssue]
            raise ValueError(f"bytes {start} to {end} do not match the hash in its footer")


def _check_footer(tail: bytes) -> int:
    """Return the start of the footer in the tail of a file."""
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise ValueError("its end is not that of a Parquet file (cut off?)")
    start = _footer_start(tail)
    if start < 0:
        raise ValueError("its footer has an impossible length")
    footer = bytearray(tail[start:])
    place = _find_digest(footer)
    stated = bytes(footer[place : place + len(BLANK)])
    footer[place : place + len(BLANK)] = BLANK
    if _digest(footer) != stated:
        raise ValueError("its footer does not match its digest")
    return start


def read_part(part: Part) -> pa.Table:
    """Return the table of a part; ``StoreError`` if a byte of the file has changed."""
    with open_part(part) as file:
        file.check()
        return file.read()


def read_columns(part: Part, columns: Sequence[str]) -> tuple[pa.Table, dict[str, str]]:
    """Return the requested columns, as far as the part has them, and its metadata; little else is read."""
    with open_part(part) as file:
        return file.read([name for name in columns if name in file.names]), file.about


def read_rows(part: Part, rows: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows at some positions (sorted, distinct), reading only their row groups."""
    with open_part(part) as file:
        size = file.rows_per_group
        groups = sorted({row // size for row in rows})
        starts = {group: index * size for index, group in enumerate(groups)}
        table = file.read(columns, groups)
        places = [starts[row // size] + row % size for row in rows]
        return table.take(pa.array(places, pa.int64()))


def read_about(part: Part) -> dict[str, str]:
    """Return the metadata of the part (stage, fingerprint, counts, versions)."""
    with open_part(part) as file:
        return file.about


@contextmanager
def open_part(part: Part) -> Generator[OpenPart]:
    """Open a part to read some of it."""
    try:
        with part.folder.open(part.name) as file:
            opened, own = OpenPart(file), part.name.rpartition("/")[2]
            if (
                stated := opened.about.get("name", own)
            ) != own:  # parts of earlier releases state none
                raise ValueError(f"it was written as {stated}")
            yield opened
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        again = f"pairwright resume {shlex.quote(part.folder.url)}"
        raise StoreError(
            f"{part.path}: the part is missing. Make its rows again: {again}"
        ) from error
    except (ValueError, KeyError, OSError, IndexError, struct.error, pa.ArrowException) as error:
        if (
            isinstance(error, OSError) and error.errno
        ):  # Arrow's own errors are OSErrors without a number
            raise StoreError(
                f"{part.path}: could not be read: {error.strerror or error}"
            ) from error
        raise StoreError(
            f"{part.path}: the part is damaged: {error}. Delete it and run `pairwright resume` to make its rows again."
        ) from error


def describe_part(name: str, table: pa.Table, *, version: int) -> dict[str, str]:
    """Return the metadata of a part of this name ("tables/STAGE/FINGERPRINT/part-...")."""
    _, stage, mark, file = name.split("/")
    counts = {"rows": len(table), "ok": 0, "dropped": 0, "failed": 0, **count_statuses(table)}
    about = {"name": file, "stage": stage, "fingerprint": mark, "version": str(version)}
    return about | {name: str(count) for name, count in counts.items()}


def count_statuses(table: pa.Table) -> dict[str, int]:
    """Return the number of rows by status, for the part's metadata."""
    return {
        item["values"]: item["counts"] for item in table.column("status").value_counts().to_pylist()
    }
