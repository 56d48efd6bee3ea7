"""Read rows of Parquet tables on a local disk or a remote store.

Lists one ``ItemRow`` per row from the files' footers; reads a shard by opening each file once, only
the reader's columns and one row at a time. Files may be hostile: one that is not a table, or lacks
the columns, is one dropped item with its reason; row counts are limited by the file's size; Arrow
buffers are validated before use; rows are decoded singly, so that a small file cannot expand to
many large values at once. Memory holds one page of a file, as large as its writer made it (at most
2 GB).
"""

import base64
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError, wrap_errors
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.images.decode import is_image_start
from pairwright.tasks.sources.annotations import choose_splits
from pairwright.tasks.sources.find_files import (
    UNKNOWN_STATE,
    FilePattern,
    FileState,
    open_pattern,
)
from pairwright.tasks.sources.read_entry import SourceImage, read_below
from pairwright.tasks.sources.reader import (
    Reader,
    ReadResult,
    RefusedEntryError,
    SourceRow,
    describe_error,
    escape_name,
    list_item,
    locate,
    make_refusal,
    read_one,
)

log = logging.getLogger(__name__)

BUFFER_BYTES = 4 << 20
"""Bytes of a column read at once."""
SPLIT_WORDS = (
    "train",
    "training",
    "validation",
    "valid",
    "val",
    "dev",
    "test",
    "testing",
    "eval",
    "evaluation",
)
NUMBERED = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?")
"""Pattern of the Hub's file names of a split."""
NUMBERS = ("uint8", "int16", "uint16", "int32", "int64")
"""Names of Arrow's types of numbers that bytes are written as, in lists."""
MIN_BASE64 = 64
"""Characters of the smallest image in base64."""
BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
BYTES = ("binary", "large_binary", "binary_view")
"""Names of Arrow's types of bytes."""
LOOKING_AHEAD = 8
"""Footers fetched at once."""
ROWS_PER_SHARD = 256
"""A row group is read from its start to the shard's last row in it, so small shards would read
large groups often."""

Record = dict[str, Any]
"""Columns of one row that the reader needs, under its own names."""
ChooseColumns = Callable[[pa.Schema, ReadingConfig], dict[str, str]]
"""Function that returns the columns to read, each with its name in a record; it refuses a table
without them."""
Listing = tuple[str, FileState, list[int] | RefusedEntryError]
"""A file and the number of rows of each of its groups, or why it is refused."""
Located = tuple[ItemRow, Mapping[str, Any]]
"""An item and its locator."""
ReadRows = Iterator[tuple[ItemRow, Record | Dropped | Failed]]
"""Each item with its row, or with the reason why there is none."""


class _MediumError(Exception):
    """Error of a disk or store; pyarrow reports failed media and damaged data alike."""


def _wrap_medium_errors() -> AbstractContextManager[None]:
    return wrap_errors(_MediumError, keep=RefusedEntryError)


class _WatchedFile:
    """File whose failed reads raise ``_MediumError``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        with _wrap_medium_errors():
            return self._file.read(size)


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of a row: its bytes, or the path of its file."""

    data: bytes | None
    path: str


def images_in(value: Any) -> list[Cell]:
    """Return the images in a value; nulls and other types are left out."""
    match value:
        case [int(), *_]:  # bytes as numbers: list<uint8>
            try:
                return [Cell(bytes(value), "")]
            except (TypeError, ValueError):
                return []
        case list():
            cells: list[Cell] = []
            for element in value:
                if not isinstance(element, list):
                    cells += images_in(element)
            return cells
        case bytes():
            return [Cell(value, "")]
        case str() if value:
            data = decode_base64(value)
            return [Cell(data, "" if data else value)]
        case {"bytes": bytes() as data, **others}:
            path = others.get("path")
            return [Cell(data, path if isinstance(path, str) else "")]
        case {"bytes": str() | list() as encoded, **others} if encoded:
            return images_in(encoded)
        case {"path": str() as path} if path:
            return [Cell(None, path)]
        case _:
            return []


def decode_base64(text: str) -> bytes | None:
    """Return the bytes of an image written in base64, also as a data address; ``None``: it is not.

    Text that begins as an image once decoded is no path.
    """
    if text.startswith("data:"):
        _, _, text = text.partition(";base64,")
    if len(text) < MIN_BASE64 or not BASE64.fullmatch(text):
        return None
    try:
        data = base64.b64decode(text)
    except ValueError:
        return None
    return data if is_image_start(data) else None


def only_cell(value: Any) -> Cell:
    """Return the image in a value; ``RefusedEntryError`` if there is none, or more than one."""
    cells = images_in(value)
    if not cells:
        raise RefusedEntryError("no image in the row")
    if len(cells) > 1:
        raise RefusedEntryError("too many images in a row")
    return cells[0]


def require_columns(
    schema: pa.Schema, names: Sequence[str], *, images: Sequence[str] = ()
) -> dict[str, str]:
    """Return the columns of a known data set; ``RefusedEntryError`` if one is missing."""
    types = column_types(schema)
    missing = sorted({*names, *images} - types.keys())
    if missing:
        raise wrong_columns(f"has no column {', '.join(missing)}", schema)
    for name in images:
        if not is_struct(types[name]) and str(types[name]) not in BYTES:
            raise wrong_columns(f"column {name} holds no images", schema)
    return {name: name for name in (*names, *images)}


def wrong_columns(fault: str, schema: pa.Schema) -> RefusedEntryError:
    """Return the error of a table without the columns of its reader."""
    columns = ", ".join(f"{escape_name(field.name)} ({field.type})" for field in schema)
    return RefusedEntryError("wrong columns", f"{fault}; the columns are: {columns[:1000]}")


def column_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type of each column, or of its list items."""
    if len(set(schema.names)) < len(schema.names):
        raise wrong_columns("two columns have one name", schema)
    return {field.name: getattr(field.type, "value_type", field.type) for field in schema}


def is_struct(kind: pa.DataType) -> bool:
    """Return whether a type is that of images written by ``datasets``, or has more fields."""
    if not pa.types.is_struct(kind):
        return False
    types = {field.name: field.type for field in kind}
    if "bytes" not in types:
        return False
    inner = types["bytes"]
    if str(inner) in (*BYTES, "null"):
        return "path" in types or len(types) > 1 or str(inner) != "null"
    return is_number_list(inner) or str(inner) in ("string", "large_string")


def is_number_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of bytes as numbers."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and str(kind.value_type) in NUMBERS


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table, and the folder of its images."""

    item: ItemRow
    record: Record
    config: SourceConfig
    folder: str
    """Local folder of relative image paths; empty: a remote source without one."""

    @property
    def split(self) -> str:
        """Return the split that the table's path names."""
        return split_of(json.loads(self.item.locator)["file"])

    def picture(self, cell: Cell, captions: tuple[str, ...] = (), part: str = "") -> SourceImage:
        """Return an image's bytes under a readable name; a path is read from the folder."""
        label = part or Path(cell.path[-200:]).name
        name = escape_name(f"{self.item.name} {label}".strip())
        return SourceImage(data=self._bytes_of(cell), name=name, captions=captions)

    def _bytes_of(self, cell: Cell) -> bytes:
        if cell.data is not None:
            return cell.data
        if not self.folder:
            raise RefusedEntryError("image is not in the table", escape_name(cell.path[:200]))
        return read_below(self.folder, cell.path, self.config.images)


def table_reader(
    choose: ChooseColumns,
    read_row: Callable[[TableRow], Iterable[SourceRow]],
    **declaration: Any,
) -> Reader:
    """Return the reader of a data set of tables; ``read_row`` refuses an unusable row."""

    def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[ReadResult]:
        folder = image_folder(config)
        for item, record in read_table_rows(items, config, choose=choose):
            if isinstance(record, Dropped | Failed):
                yield record
                continue
            row = TableRow(item, record, config, folder)
            yield from read_one(item, lambda _, row: read_row(row), row)

    listing = partial(list_rows, choose=choose)
    return Reader(
        list_items=listing, read_items=read_items, rows_per_shard=ROWS_PER_SHARD, **declaration
    )


def image_folder(config: SourceConfig) -> str:
    """Return the local folder of relative paths in rows; empty for a remote source without one."""
    if config.reading.images:
        return config.reading.images
    files = open_pattern(config.path)
    return files.root if files.is_local else ""


def list_rows(
    config: SourceConfig, limit: int | None, *, choose: ChooseColumns
) -> Iterator[ItemRow]:
    """Yield an item per row of the tables, at most ``limit``; ``SourceError`` if none is usable."""
    files = open_pattern(config.path)
    tables = files.names((".parquet",))
    splits = {name: split_of(name) for name in tables}
    if not splits:
        raise SourceError(
            f"{files.address}: has no Parquet file "
            "(write what `save_to_disk` saved with `to_parquet`)"
        )
    available = sorted(set(splits.values()))
    chosen = choose_splits(files.address, config.reading.splits, available)
    tables.sort(key=os.fsencode)
    names = [name for name in dict.fromkeys(tables) if splits[name] in chosen]
    threads = ThreadPoolExecutor(LOOKING_AHEAD)
    try:
        listings = threads.map(partial(_read_footer, files, config, choose), names)
        yield from islice(_list_tables(files, config.kind, listings), limit)
    finally:
        threads.shutdown(cancel_futures=True)  # the footers beyond a limit


def split_of(name: str) -> str:
    """Return the split in a table's path; "train" if there is none, as on the Hugging Face Hub."""
    path = PurePosixPath(name)
    match = NUMBERED.fullmatch(path.stem)
    if match:
        split = match["split"].rpartition("-")[2]
        if split not in ("data", "part"):
            return split
    folders = reversed(path.parts[:-1])
    name_parts = re.split(r"[\W_]+", path.stem)
    for candidate in (*folders, *name_parts):
        if candidate.lower() in SPLIT_WORDS:
            return candidate
    return "train"


def _open(files: FilePattern, name: str) -> pq.ParquetFile:
    with _wrap_medium_errors():
        opened = files.open_for_reading(name)
    with ExitStack() as stack:
        stack.callback(opened.close)
        # Without pre_buffer, columns are streamed; otherwise a whole row group would be fetched
        # first.
        file = pa.PythonFile(_WatchedFile(opened), mode="r")
        table = pq.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        stack.pop_all()
    return table


def _read_footer(
    files: FilePattern,
    config: SourceConfig,
    choose: ChooseColumns,
    name: str,
) -> Listing:
    """Read one footer; a failed medium ends the listing, a bad file is one refused item."""
    state = UNKNOWN_STATE
    try:
        with _wrap_medium_errors():
            state = files.stat(name)
        with closing(_open(files, name)) as table:
            choose(table.schema_arrow, config.reading)
            groups = range(table.num_row_groups)
            counts = [table.metadata.row_group(group).num_rows for group in groups]
        total = sum(counts)
        # Each row would be listed as an item.
        if any(count < 0 for count in counts) or total > state["size"]:
            raise ValueError(f"{total} rows in {state['size']} bytes")
    except RefusedEntryError as error:
        return name, state, error
    except _MediumError as error:
        message = describe_error(error.__cause__ or error)
        raise SourceError(
            f"{files.address}: {escape_name(name)}: cannot be read: {message}"
        ) from error
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        return name, state, RefusedEntryError("damaged table", describe_error(error))
    return name, state, counts


def _list_tables(files: FilePattern, kind: str, listings: Iterable[Listing]) -> Iterator[ItemRow]:
    total = 0
    fault = ""
    for file, state, counts in listings:
        name = escape_name(file)
        locator = {"file": file, **state}
        if isinstance(counts, RefusedEntryError):
            fault = fault or f"no table can be read: {name}: {counts.detail or counts.reason}"
            yield list_item(kind, name, locator, counts)
            continue
        number = 0
        for group, count in enumerate(counts):
            for row in range(count):
                row_locator = {**locator, "group": group, "row": row}
                yield list_item(kind, f"{name}#{number}", row_locator)
                number += 1
        total += number
    if not total:
        raise SourceError(f"{files.address}: {fault or 'the tables have no rows'}")
    log.info("%s: listed %d rows", files.address, total)


def read_table_rows(
    items: Sequence[ItemRow], config: SourceConfig, *, choose: ChooseColumns
) -> ReadRows:
    """Yield each item of a shard with its row, or with the reason why there is none."""
    files = open_pattern(config.path)
    located: list[Located] = [(item, json.loads(item.locator)) for item in items]
    for _, members in groupby(located, key=lambda entry: entry[1]["file"]):
        entries = list(members)
        try:
            locator = locate(entries[0][0])
            with _wrap_medium_errors():
                files.stat(locator["file"], locator)
            table = _open(files, locator["file"])
            columns = choose(table.schema_arrow, config.reading)
        except Exception as error:  # noqa: BLE001 - hostile files, stores of any kind
            yield from ((item, _refuse_unread(item, error)) for item, _ in entries)
            continue
        with closing(table):
            for group, inside in groupby(entries, key=lambda entry: entry[1]["group"]):
                pending = {locator["row"]: item for item, locator in inside}
                yield from _read_group(table, pending, group=group, columns=columns)


def _read_group(
    table: pq.ParquetFile,
    pending: dict[int, ItemRow],
    *,
    group: int,
    columns: dict[str, str],
) -> ReadRows:
    """Read rows of a group one by one, up to the last pending one.

    Each pending item gets its values or a reason in any case.
    """
    try:
        batches = table.iter_batches(
            1, row_groups=[group], columns=list(columns), use_threads=False
        )
        rows = range(max(pending) + 1)
        for row, batch in zip(rows, batches, strict=False):
            item = pending.pop(row, None)
            if item is not None:
                yield item, _read_record(item, batch, columns)
        if pending:
            raise ValueError("the row group ends before its last row")
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        yield from ((item, _refuse_unread(item, error)) for item in pending.values())


def _read_record(
    item: ItemRow, batch: pa.RecordBatch, columns: Mapping[str, str]
) -> Record | Dropped | Failed:
    """Return the values of a batch of one row, under the reader's names."""
    try:
        batch.validate(full=True)  # offsets that point outside would crash the process
        values: Record = batch.to_pylist()[0]
        return {columns[name]: value for name, value in values.items()}
    except Exception as error:  # noqa: BLE001 - a row of undecodable text or impossible offsets
        return make_refusal(item, RefusedEntryError("damaged row", describe_error(error)))


def _refuse_unread(item: ItemRow, error: Exception) -> Dropped | Failed:
    if isinstance(error, _MediumError) and isinstance(error.__cause__, Exception):
        return make_refusal(item, error.__cause__)
    if isinstance(error, RefusedEntryError):
        return make_refusal(item, error)
    return make_refusal(item, RefusedEntryError("damaged table", describe_error(error)))
