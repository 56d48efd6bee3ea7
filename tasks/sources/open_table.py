"""Open one table, read its rows one by one in bounded memory, and find its columns of images and captions.

Files may be hostile: row counts are limited by the file's size, Arrow buffers are validated before use, and rows are
decoded singly, so that a small file cannot expand to many large values at once. Memory holds one page of a Parquet
file, as large as its writer made it (at most 2 GB).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from pairwright.schemas.config import ReadingConfig
from pairwright.tasks.sources.read_entry import RefusedEntryError, shown_name

BUFFER_BYTES = 4 << 20
"""Bytes of a column read at once."""
IMAGE_NAMES = ("image", "images", "img", "jpg", "jpeg", "png", "webp", "picture", "photo", "image_bytes", "bytes")
"""Names of columns of plain bytes that are taken for images."""
CAPTION_NAMES = ("caption", "captions", "text", "texts", "sentence", "sentences", "description", "descriptions")


class ParquetTable:
    """Parquet file; column chunks are read in pieces of ``BUFFER_BYTES``."""

    def __init__(self, file: Any, size: int) -> None:
        """Read the footer."""
        self._size = size
        # Without pre_buffer, columns are streamed; otherwise a whole row group would be fetched first.
        self._file = pq.ParquetFile(pa.PythonFile(file, mode="r"), buffer_size=BUFFER_BYTES, pre_buffer=False)
        self.schema: pa.Schema = self._file.schema_arrow

    def group_rows(self) -> list[int]:
        """Return the number of rows of each row group, from the footer."""
        meta = self._file.metadata
        return _believed([meta.row_group(group).num_rows for group in range(meta.num_row_groups)], self._size)

    def read_group(self, group: int, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a row group, ascending, each as a batch of one; reads up to the last of them."""
        wanted = iter(rows)
        row = next(wanted, -1)
        batches = self._file.iter_batches(1, row_groups=[group], columns=list(columns), use_threads=False)
        for number, batch in enumerate(batches):
            if number == row:
                yield batch
                if (row := next(wanted, -1)) < 0:
                    return
        raise ValueError(f"the row group has no row {row}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ArrowTable:
    """Arrow IPC stream on a local disk, mapped into memory; its record batches are the groups."""

    def __init__(self, path: bytes, size: int) -> None:
        """Map the file and read its schema."""
        self._size = size
        self._map = pa.memory_map(path)
        if self._map.read(6) == b"ARROW1":
            raise RefusedEntryError("another form of Arrow", "an Arrow file, not the stream that `datasets` saves")
        self.schema: pa.Schema = self._open().schema

    def group_rows(self) -> list[int]:
        """Return the number of rows of each record batch, without reading the data."""
        rows: list[int] = []
        for batch in self._open():
            batch.validate()
            rows.append(batch.num_rows)
        return _believed(rows, self._size)

    def read_group(self, group: int, columns: Sequence[str], rows: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield some rows of a record batch."""
        batch = next((batch for number, batch in enumerate(self._open()) if number == group), None)
        if batch is None:
            raise ValueError(f"there is no record batch {group}")
        chosen = batch.select(list(columns))
        chosen.validate()
        for row in rows:
            if row >= chosen.num_rows:
                raise ValueError(f"the record batch has no row {row}")
            yield chosen.slice(row, 1)

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def _open(self) -> Any:
        self._map.seek(0)
        return pa.ipc.open_stream(self._map)


def to_record(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the row of a batch of one as Python values."""
    # Arrow does not check IPC files when reading: offsets that point outside would crash the process.
    batch.validate(full=True)
    return batch.to_pylist()[0]


def _believed(rows: list[int], size: int) -> list[int]:
    """Refuse row counts that a file of this size cannot hold, since each row would be listed as an item."""
    if any(count < 0 for count in rows) or sum(rows) > size:
        raise ValueError(f"{sum(rows)} rows in {size} bytes")
    return rows


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of a row: its bytes, or the path of its file."""

    data: bytes | None
    path: str


def cells_of(value: Any) -> list[Cell]:
    """Return the images in a value; nulls and other types are left out."""
    if isinstance(value, list):
        return [cell for one in value if not isinstance(one, list) for cell in cells_of(one)]
    if isinstance(value, bytes):
        return [Cell(value, "")]
    if isinstance(value, str) and value:
        return [Cell(None, value)]
    if not isinstance(value, dict):
        return []
    data, path = value.get("bytes"), value.get("path")
    path = path if isinstance(path, str) else ""
    data = data if isinstance(data, bytes) else None
    return [Cell(data, path)] if data is not None or path else []


def only_cell(value: Any) -> Cell:
    """Return the one image in a value; ``RefusedEntryError`` if there is none, or more than one."""
    match cells_of(value):
        case [cell]:
            return cell
        case cells:
            raise RefusedEntryError("too many images in a row" if cells else "no image in the row")


def image_columns(schema: pa.Schema, reading: ReadingConfig) -> list[str]:
    """Return the columns of images, in the table's order; ``RefusedEntryError`` if that is ambiguous."""
    kinds = _kinds(schema)
    if name := reading.image_column:
        if name not in kinds or not (_holds_images(kinds[name]) or _is_text(kinds[name])):
            raise _wrong_columns(f"reading.image_column: {name!r} holds no images here", schema)
        return [name]
    plain = [name for name, kind in kinds.items() if _is_bytes(kind)]
    found = (
        [name for name, kind in kinds.items() if _is_struct(kind)]
        or [name for name in plain if name.lower() in IMAGE_NAMES]
        or (plain if len(plain) == 1 else [])
    )
    if not found:
        raise _wrong_columns("no column is known to hold images; name one with reading.image_column", schema)
    return found


def caption_columns(schema: pa.Schema, reading: ReadingConfig) -> list[str]:
    """Return the column of captions; none if no column has a usual name."""
    texts = [name for name, kind in _kinds(schema).items() if _is_text(kind)]
    if name := reading.caption_column:
        if name not in texts:
            raise _wrong_columns(f"reading.caption_column: {name!r} holds no texts here", schema)
        return [name]
    by_name = {name.lower(): name for name in reversed(texts)}
    return [by_name[name] for name in CAPTION_NAMES if name in by_name][:1]


def need(schema: pa.Schema, names: Sequence[str], *, images: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns of a known data set, by name; ``RefusedEntryError`` if one is missing."""
    kinds = _kinds(schema)
    if missing := sorted({*names, *images} - kinds.keys()):
        raise _wrong_columns(f"has no column {', '.join(missing)}", schema)
    for name in images:
        if not _holds_images(kinds[name]):
            raise _wrong_columns(f"column {name} holds no images", schema)
    return {name: name for name in (*names, *images)}


def _wrong_columns(fault: str, schema: pa.Schema) -> RefusedEntryError:
    columns = ", ".join(f"{shown_name(field.name)} ({field.type})" for field in schema)
    return RefusedEntryError("wrong columns", f"{fault}; the columns are: {columns[:1000]}")


def _kinds(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type of each column, or of its list items."""
    if len(set(schema.names)) < len(schema.names):
        raise _wrong_columns("two columns have one name", schema)
    return {field.name: field.type.value_type if _is_list(field.type) else field.type for field in schema}


def _holds_images(kind: pa.DataType) -> bool:
    return _is_struct(kind) or _is_bytes(kind)


def _is_list(kind: pa.DataType) -> bool:
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)


def _is_text(kind: pa.DataType) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_struct(kind: pa.DataType) -> bool:
    if not types.is_struct(kind):
        return False
    inner = {field.name: field.type for field in kind}
    return set(inner) == {"bytes", "path"} and (_is_bytes(inner["bytes"]) or types.is_null(inner["bytes"]))
