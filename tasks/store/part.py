"""One part of a table: a Parquet file that describes and checks itself.

Layout: image columns uncompressed and without dictionary, text columns zstd, row groups of 100 rows, page checksums.
The footer's metadata names the stage, its fingerprint and the counts, and holds two digests: of every byte before the
footer, and of the footer itself (with the digests blanked). Since the second covers the first, a whole read finds any
flipped byte; a read of few rows or columns checks the footer and the pages that it touches.

The bytes depend only on the rows, never on time, host or process.
"""

import hashlib
import re
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import StoreError
from tasks.store.files import Folder

ROWS_PER_GROUP = 100
"""Small enough that one row can be read at little cost, large enough that text still compresses."""
DIGEST_BYTES = 16
MAGIC = b"PAR1"
CHECK_KEY = b"pairwright.check"
BLANK = b"0" * (4 * DIGEST_BYTES)
DIGESTS = re.compile(re.escape(CHECK_KEY) + rb".{1,8}?([0-9a-f]{%d})" % len(BLANK), re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """Name one part: the dataset's folder and the file below it."""

    folder: Folder
    name: str

    @property
    def path(self) -> str:
        """Return where the file is, for messages."""
        return self.folder.path(self.name)


def encode_part(table: pa.Table, about: dict[str, str]) -> bytes:
    """Return the bytes of a part that holds the table and says ``about`` itself."""
    sink = pa.BufferOutputStream()
    images = {field.name for field in table.schema if _holds_images(field.type)}
    leaves = _leaf_paths(table.schema)
    texts = [path for path in leaves if path.split(".")[0] not in images]
    options: dict[str, Any] = {
        "compression": {path: "zstd" if path in texts else "none" for path in leaves},
        "use_dictionary": texts,
        "write_statistics": texts,
        "write_page_checksum": True,
    }
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        writer.add_key_value_metadata({**about, CHECK_KEY.decode(): BLANK.decode()})
    return _seal(bytearray(sink.getvalue()))


def _holds_images(kind: pa.DataType) -> bool:
    return pa.types.is_large_binary(kind) or (pa.types.is_list(kind) and pa.types.is_large_binary(kind.value_type))


@cache
def _leaf_paths(schema: pa.Schema) -> list[str]:
    """Return the Parquet column paths ("prompt.list.element.text") of an Arrow schema."""
    parquet = pq.ParquetFile(_empty_file(schema)).schema
    return [parquet.column(index).path for index in range(len(parquet))]


def _empty_file(schema: pa.Schema) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    return pa.BufferReader(sink.getvalue())


def _seal(data: bytearray) -> bytes:
    """Write the digests over the blanks."""
    start = _footer_start(data)
    place = start + _find_digests(data[start:])
    body = _digest(memoryview(data)[:start])
    data[place : place + len(body)] = body
    data[place + len(body) : place + len(BLANK)] = _digest(memoryview(data)[start:])
    return bytes(data)


def _digest(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest().encode()


def _find_digests(footer: bytes | bytearray) -> int:
    """Return where the two digests are in a footer; a cell's statistics may imitate them, but come before."""
    found = list(DIGESTS.finditer(footer))
    if not found:
        raise ValueError("its footer has no digest")
    return found[-1].start(1)


def _footer_start(data: bytes | bytearray | memoryview) -> int:
    (size,) = struct.unpack("<I", data[-8:-4])
    return len(data) - 8 - size


def read_part(part: Part, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the whole table of a part, or some of its columns, every byte of the file checked.

    Raises:
        StoreError: the file cannot be read, or a byte of it changed since it was written; the message names it.
    """
    data = part.folder.read(part.name)
    with _reading(part):
        start, stated = _check_footer(data)
        if _digest(memoryview(data)[:start]) != stated:
            raise ValueError("its data do not have the digest that its footer states")
        return pq.ParquetFile(pa.BufferReader(data)).read(columns=_present(columns))


def _present(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


def read_columns(part: Part, columns: Sequence[str]) -> tuple[pa.Table, dict[str, str]]:
    """Return those of the columns that the part has, reading little more than them, and what it says of itself."""
    with open_part(part) as file:
        names = [name for name in columns if name in file.schema_arrow.names]
        return file.read(columns=names, use_threads=False), _about(file)


def read_rows(part: Part, rows: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows at the given positions (rising, each once), reading only the row groups that hold them."""
    with open_part(part) as file:
        groups = sorted({row // ROWS_PER_GROUP for row in rows})
        table = file.read_row_groups(groups, columns=_present(columns), use_threads=False)
        starts = {group: index * ROWS_PER_GROUP for index, group in enumerate(groups)}
        return table.take([starts[row // ROWS_PER_GROUP] + row % ROWS_PER_GROUP for row in rows])


@contextmanager
def open_part(part: Part) -> Generator[pq.ParquetFile]:
    """Open a part for reading few rows or columns: the footer is checked now, each page when it is read."""
    with part.folder.open(part.name) as file, _reading(part):
        size = file.seek(0, 2)
        file.seek(max(0, size - 65536))
        tail = file.read()
        if size >= 12 and _footer_start(tail) < 0:
            file.seek(max(0, size + _footer_start(tail) - len(tail)))
            tail = file.read()
        _check_footer(tail)
        yield pq.ParquetFile(file, page_checksum_verification=True)


def read_about(part: Part) -> dict[str, str]:
    """Return what the part says of itself (stage, fingerprint, counts, versions)."""
    with open_part(part) as file:
        return _about(file)


def _about(file: pq.ParquetFile) -> dict[str, str]:
    pairs: dict[bytes, bytes] = file.metadata.metadata or {}
    return {key.decode(): value.decode() for key, value in pairs.items() if not key.startswith(b"ARROW:")}


def _check_footer(tail: bytes) -> tuple[int, bytes]:
    """Return where the footer starts in the tail of a file, and the digest of the data that it states."""
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise ValueError("it does not end like a Parquet file (cut off?)")
    start = _footer_start(tail)
    if start < 0:
        raise ValueError("its footer has an impossible length")
    footer = bytearray(tail[start:])
    place = _find_digests(footer)
    half = len(BLANK) // 2
    body, stated = bytes(footer[place : place + half]), bytes(footer[place + half : place + len(BLANK)])
    footer[place + half : place + len(BLANK)] = BLANK[half:]
    if _digest(footer) != stated:
        raise ValueError("its footer does not have the digest that it states")
    return start, body


@contextmanager
def _reading(part: Part) -> Generator[None]:
    try:
        yield
    except (ValueError, KeyError, OSError, IndexError, struct.error, pa.ArrowException) as error:
        raise StoreError(
            f"{part.path}: the part is damaged: {error}. Delete it and run `pairwright resume`: its rows are made anew."
        ) from error


def count_statuses(table: pa.Table) -> dict[str, int]:
    """Return how many rows have each status, for the part's metadata."""
    counts: list[dict[str, Any]] = table.column("status").value_counts().to_pylist()
    return {item["values"]: item["counts"] for item in counts}
