"""Read rows of Parquet tables on a local disk or a remote store.

Lists one ``ItemRow`` per row from the files' footers; reads a shard by opening each file once, only
the reader's columns and one row at a time. Files may be hostile: one that is not a table, or lacks
the columns, is one dropped item with its reason; row counts are limited by the file's size; Arrow
buffers are validated before use; rows are decoded singly, so that a small file cannot expand to
many large values at once. Memory holds one page of a file, as large as its writer made it (at most
2 GB).
"""

import json
import logging
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.sources.annotations import choose_splits
from pairwright.tasks.sources.find_files import UNSEEN, FilePattern, Seen, open_place
from pairwright.tasks.sources.read_entry import SourceImage, read_below
from pairwright.tasks.sources.reader import (
    Given,
    Read,
    Reader,
    RefusedEntryError,
    list_item,
    locate,
    read_one,
    refuse,
    shown_name,
    shown_words,
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
BYTES = ("binary", "large_binary", "binary_view")
"""Names of Arrow's types of bytes."""
LOOKING_AHEAD = 8
"""Footers fetched at once."""
ROWS_PER_SHARD = 256
"""A row group is read from its start to the shard's last row in it, so small shards would read
large groups often."""

Record = dict[str, Any]
"""Columns of one row that the reader needs, under its own names."""
Choose = Callable[[pa.Schema, ReadingConfig], dict[str, str]]
"""Function that returns the columns to read, each with its name in a record; it refuses a table
without them."""
Listing = tuple[str, Seen, list[int] | RefusedEntryError]
"""A file and the number of rows of each of its groups, or why it is refused."""
Found = Iterator[tuple[ItemRow, Record | Dropped | Failed]]
"""Each item with its row, or with the reason why there is none."""


class _MediumError(Exception):
    """Wrapper of an error of a disk or store, since pyarrow reports failed media and damaged data alike."""


@contextmanager
def _medium() -> Generator[None]:
    try:
        yield
    except RefusedEntryError:
        raise
    except Exception as error:
        raise _MediumError from error


class _WatchedFile:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        with _medium():
            return self._file.read(size)


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of a row: its bytes, or the path of its file."""

    data: bytes | None
    path: str


def cells_of(value: Any) -> list[Cell]:
    """Return the images in a value; nulls and other types are left out."""
    match value:
        case list():
            return [cell for one in value if not isinstance(one, list) for cell in cells_of(one)]
        case bytes():
            return [Cell(value, "")]
        case str() if value:
            return [Cell(None, value)]
        case {"bytes": bytes() as data, "path": path}:
            return [Cell(data, path if isinstance(path, str) else "")]
        case {"path": str() as path} if path:
            return [Cell(None, path)]
        case _:
            return []


def only_cell(value: Any) -> Cell:
    """Return the one image in a value; ``RefusedEntryError`` if there is none, or more than one."""
    match cells_of(value):
        case [cell]:
            return cell
        case cells:
            raise RefusedEntryError("too many images in a row" if cells else "no image in the row")


def need(schema: pa.Schema, names: Sequence[str], *, images: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns of a known data set, by name; ``RefusedEntryError`` if one is missing."""
    kinds = kinds_of(schema)
    if missing := sorted({*names, *images} - kinds.keys()):
        raise wrong_columns(f"has no column {', '.join(missing)}", schema)
    if plain := next(
        (name for name in images if not (is_struct(kinds[name]) or str(kinds[name]) in BYTES)), ""
    ):
        raise wrong_columns(f"column {plain} holds no images", schema)
    return {name: name for name in (*names, *images)}


def wrong_columns(fault: str, schema: pa.Schema) -> RefusedEntryError:
    """Return the error of a table without the columns of its reader."""
    columns = ", ".join(f"{shown_name(field.name)} ({field.type})" for field in schema)
    return RefusedEntryError("wrong columns", f"{fault}; the columns are: {columns[:1000]}")


def kinds_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type of each column, or of its list items."""
    if len(set(schema.names)) < len(schema.names):
        raise wrong_columns("two columns have one name", schema)
    return {field.name: getattr(field.type, "value_type", field.type) for field in schema}


def is_struct(kind: pa.DataType) -> bool:
    """Return whether a type is that of images written by ``datasets``."""
    inner = {field.name: str(field.type) for field in kind} if pa.types.is_struct(kind) else {}
    return set(inner) == {"bytes", "path"} and inner["bytes"] in (*BYTES, "null")


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
        name = shown_name(f"{self.item.name} {part or Path(cell.path[-200:]).name}".strip())
        if cell.data is None and not self.folder:
            raise RefusedEntryError("image is not in the table", shown_name(cell.path[:200]))
        data = (
            read_below(self.folder, cell.path, self.config.images)
            if cell.data is None
            else cell.data
        )
        return SourceImage(data=data, name=name, captions=captions)


def table_reader(
    choose: Choose, read_row: Callable[[TableRow], Iterable[Given]], **declaration: Any
) -> Reader:
    """Return the reader of a data set of tables; ``read_row`` raises ``RefusedEntryError`` for an unusable row."""

    def read_items(items: Sequence[ItemRow], config: SourceConfig) -> Iterator[Read]:
        folder = image_folder(config)
        for item, record in read_rows(items, config, choose=choose):
            if isinstance(record, Dropped | Failed):
                yield record
            else:
                yield from read_one(
                    item, lambda *row: read_row(TableRow(*row)), record, config, folder
                )

    listing = partial(list_rows, choose=choose)
    return Reader(
        list_items=listing, read_items=read_items, rows_per_shard=ROWS_PER_SHARD, **declaration
    )


def image_folder(config: SourceConfig) -> str:
    """Return the local folder of relative paths in rows; empty for a remote source without one."""
    if config.reading.images:
        return config.reading.images
    place = open_place(config.path)
    return place.root if place.is_local else ""


def list_rows(config: SourceConfig, limit: int | None, *, choose: Choose) -> Iterator[ItemRow]:
    """Yield an item per row of the source's tables, at most ``limit``; ``SourceError`` if no table is usable."""
    place = open_place(config.path)
    found = {name: split_of(name) for name in place.names((".parquet",))}
    if not found:
        raise SourceError(
            f"{place.address}: has no Parquet file (write what `save_to_disk` saved with `to_parquet`)"
        )
    wanted = choose_splits(place.address, config.reading.splits, sorted(set(found.values())))
    names = [name for name in sorted(found, key=os.fsencode) if found[name] in wanted]
    threads = ThreadPoolExecutor(LOOKING_AHEAD)
    try:
        listings = threads.map(partial(_look, place, config, choose), names)
        yield from islice(_list_items(place, config.kind, listings), limit)
    finally:
        threads.shutdown(cancel_futures=True)  # the footers beyond a limit


def split_of(name: str) -> str:
    """Return the split in a table's path; "train" if there is none, as on the Hugging Face Hub."""
    path = PurePosixPath(name)
    if match := NUMBERED.fullmatch(path.stem):
        split = match["split"].rpartition("-")[2]
        if split not in ("data", "part"):
            return split
    folders = [part for part in reversed(path.parts[:-1]) if part.lower() in SPLIT_WORDS]
    words = [word for word in re.split(r"[\W_]+", path.stem) if word.lower() in SPLIT_WORDS]
    return next(iter((*folders, *words)), "train")


def _open(place: FilePattern, name: str) -> pq.ParquetFile:
    with _medium():
        opened = place.open(name)
    try:
        # Without pre_buffer, columns are streamed; otherwise a whole row group would be fetched
        # first.
        file = pa.PythonFile(_WatchedFile(opened), mode="r")
        return pq.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except Exception:
        opened.close()
        raise


def _look(place: FilePattern, config: SourceConfig, choose: Choose, name: str) -> Listing:
    """Read one footer; a failed medium ends the listing, a bad file is one refused item."""
    seen = UNSEEN
    try:
        with _medium():
            seen = place.look(name)
        with closing(_open(place, name)) as table:
            choose(table.schema_arrow, config.reading)
            rows = [
                table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)
            ]
        if (
            any(count < 0 for count in rows) or sum(rows) > seen["size"]
        ):  # each row would be listed as an item
            raise ValueError(f"{sum(rows)} rows in {seen['size']} bytes")
        return name, seen, rows
    except RefusedEntryError as error:
        return name, seen, error
    except _MediumError as error:
        words = shown_words(error.__cause__ or error)
        raise SourceError(
            f"{place.address}: {shown_name(name)}: cannot be read: {words}"
        ) from error
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        return name, seen, RefusedEntryError("damaged table", shown_words(error))


def _list_items(place: FilePattern, kind: str, listings: Iterable[Listing]) -> Iterator[ItemRow]:
    rows, fault = 0, ""
    for file, seen, found in listings:
        name, where = shown_name(file), {"file": file, **seen}
        if isinstance(found, RefusedEntryError):
            fault = fault or f"no table can be read: {name}: {found.detail or found.reason}"
            yield list_item(kind, name, where, found)
            continue
        every = ((group, row) for group, count in enumerate(found) for row in range(count))
        for number, (group, row) in enumerate(every):
            yield list_item(kind, f"{name}#{number}", {**where, "group": group, "row": row})
        rows += sum(found)
    if not rows:
        raise SourceError(f"{place.address}: {fault or 'the tables have no rows'}")
    log.info("%s: listed %d rows", place.address, rows)


def read_rows(items: Sequence[ItemRow], config: SourceConfig, *, choose: Choose) -> Found:
    """Yield each item of a shard with its row, or with the reason why there is none."""
    place = open_place(config.path)
    located = [(item, json.loads(item.locator)) for item in items]
    for _, members in groupby(located, key=lambda both: both[1]["file"]):
        some = list(members)
        try:
            where = locate(some[0][0])
            with _medium():
                place.look(where["file"], where)
            table = _open(place, where["file"])
            columns = choose(table.schema_arrow, config.reading)
        except Exception as error:  # noqa: BLE001 - the boundary to hostile files, and to stores of any kind
            yield from ((item, _unread(item, error)) for item, _ in some)
            continue
        with closing(table):
            for group, inside in groupby(some, key=lambda both: both[1]["group"]):
                yield from _read_group(
                    table, {one["row"]: item for item, one in inside}, group=group, columns=columns
                )


def _read_group(
    table: pq.ParquetFile, left: dict[int, ItemRow], *, group: int, columns: dict[str, str]
) -> Found:
    """Read some rows of a group one by one, up to the last of them; each gets its values or a reason in any case."""
    try:
        batches = table.iter_batches(
            1, row_groups=[group], columns=list(columns), use_threads=False
        )
        for row, batch in zip(range(max(left) + 1), batches, strict=False):
            if (item := left.pop(row, None)) is None:
                continue
            try:
                batch.validate(full=True)  # offsets that point outside would crash the process
                yield item, {columns[name]: value for name, value in batch.to_pylist()[0].items()}
            except Exception as error:  # noqa: BLE001 - a row of undecodable text or impossible offsets
                yield item, refuse(item, RefusedEntryError("damaged row", shown_words(error)))
        if left:
            raise ValueError("the row group ends before its last row")
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        yield from ((item, _unread(item, error)) for item in left.values())


def _unread(item: ItemRow, error: Exception) -> Dropped | Failed:
    if isinstance(error, _MediumError) and isinstance(error.__cause__, Exception):
        return refuse(item, error.__cause__)
    refused = (
        error
        if isinstance(error, RefusedEntryError)
        else RefusedEntryError("damaged table", shown_words(error))
    )
    return refuse(item, refused)
