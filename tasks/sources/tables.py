"""Read rows of tables: Parquet files, and folders saved by ``datasets``, on a local disk or a remote store.

Lists one ``ItemRow`` per row from the files' footers; reads a shard by opening each file once, only the reader's
columns and one row at a time. Files may be hostile: one that is not a table, or lacks the columns, is one dropped item
with its reason; if no file is usable, the source is refused.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyarrow as pa

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ItemRow
from pairwright.tasks.sources.annotations import choose_splits, load_json
from pairwright.tasks.sources.find_files import Place, SourceFile, open_place
from pairwright.tasks.sources.open_table import ArrowTable, Cell, ParquetTable, to_record
from pairwright.tasks.sources.read_entry import (
    Picture,
    RefusedEntryError,
    list_item,
    read_below,
    read_one,
    refuse,
    shown_name,
    shown_words,
)
from pairwright.tasks.sources.reader import Given, Read, Reader

log = logging.getLogger(__name__)

SPLIT_WORDS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
NUMBERED = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?")
"""Pattern of the Hub's file names of a split."""
LOOKING_AHEAD = 8
"""Footers fetched at once."""
ROWS_PER_SHARD = 256
"""A row group is read from its start to the shard's last row in it, so small shards would read large groups often."""

Record = dict[str, Any]
"""Columns of one row that the reader needs, under its own names."""
Choose = Callable[[pa.Schema, ReadingConfig], dict[str, str]]
"""Function that returns the columns to read, each with its name in a record; it refuses a table without them."""
Located = tuple[ItemRow, dict[str, Any]]
"""An item and its parsed locator."""
Listing = tuple[SourceFile, list[int] | RefusedEntryError]
"""A file and the number of rows of each of its groups, or why it is refused."""


class _MediumError(Exception):
    """Error of a disk or store, as its cause: pyarrow reports failed media and damaged data alike."""


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

    def picture(self, cell: Cell, captions: tuple[str, ...] = (), part: str = "") -> Picture:
        """Return an image's bytes under a readable name; a path is read from the folder."""
        name = shown_name(f"{self.item.name} {part or Path(cell.path[-200:]).name}".strip())
        if cell.data is not None:
            return Picture(data=cell.data, name=name, captions=captions)
        if not self.folder:
            raise RefusedEntryError("image is not in the table", shown_name(cell.path[:200]))
        return Picture(data=read_below(self.folder, cell.path, self.config.images), name=name, captions=captions)


def table_reader(choose: Choose, read_row: Callable[[TableRow], Iterable[Given]], **declaration: Any) -> Reader:
    """Return the reader of a data set of tables; ``read_row`` raises ``RefusedEntryError`` for an unusable row."""
    return Reader(
        list_items=partial(list_rows, choose=choose),
        read_items=partial(_read_tables, choose=choose, read_row=read_row),
        rows_per_shard=ROWS_PER_SHARD,
        **declaration,
    )


def _read_tables(
    items: Sequence[ItemRow], config: SourceConfig, *, choose: Choose, read_row: Callable[[TableRow], Iterable[Given]]
) -> Iterator[Read]:
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=choose):
        if isinstance(record, Dropped | Failed):
            yield record
        else:
            yield from read_one(item, partial(read_row, TableRow(item, record, config, folder)))


def image_folder(config: SourceConfig) -> str:
    """Return the local folder of relative paths in rows; empty for a remote source without one."""
    if config.reading.images:
        return config.reading.images
    place = open_place(config.path)
    return place.root if place.is_local else ""


def list_rows(config: SourceConfig, limit: int | None, *, choose: Choose) -> Iterator[ItemRow]:
    """Yield an item per row of the source's tables, at most ``limit``; ``SourceError`` if no table is usable."""
    place = open_place(config.path)
    threads = ThreadPoolExecutor(LOOKING_AHEAD)
    try:
        listings = threads.map(partial(_look, place, config, choose), _find_tables(place, config.reading.splits))
        yield from islice(_list_items(place, config.kind, listings), limit)
    finally:
        threads.shutdown(cancel_futures=True)  # the footers beyond a limit


def _find_tables(place: Place, splits: Sequence[str]) -> list[str]:
    names = place.names((".parquet", ".arrow") if place.is_local else (".parquet",))
    found = {name: split_of(name) for name in _without_leftovers(place, names)}
    if not found:
        raise SourceError(f"{place.address}: has no Parquet file, and is not a local folder saved by `datasets`")
    wanted = choose_splits(place.address, splits, sorted(set(found.values())))
    return [name for name in sorted(found, key=os.fsencode) if found[name] in wanted]


def _without_leftovers(place: Place, names: Sequence[str]) -> Iterator[str]:
    """Leave out Arrow files without data: caches, and leftovers of an earlier save in the same folder."""
    data_files = lru_cache(_data_files)
    for name in names:
        path = Path(place.path(name))
        state = path.with_name("state.json")
        if path.suffix == ".arrow" and state.is_file():
            is_data = path.name in data_files(state)
        else:
            is_data = path.suffix != ".arrow" or not path.name.startswith("cache-")
        if is_data:
            yield name


def _data_files(state: Path) -> list[Any]:
    """Return the names of the Arrow files saved by ``datasets``, all of which must exist."""
    said: dict[str, Any] = load_json(state, dict)
    if said.get("_indices_data_files"):
        raise SourceError(f"{state}: selects rows by indices; save it again with a newer `datasets`")
    files = said.get("_data_files")
    names = [one.get("filename") for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    if lacking := [name for name in names if not (isinstance(name, str) and (state.parent / name).is_file())]:
        raise SourceError(f"{state}: names missing files: {shown_name(str(lacking)[:200])}; save the data set again")
    return names


def split_of(name: str) -> str:
    """Return the split in a table's path; "train" if there is none, as on the Hugging Face Hub."""
    path = PurePosixPath(name)
    if path.suffix == ".arrow" and path.parent.name:
        return path.parent.name
    if match := NUMBERED.fullmatch(path.stem):
        split = match["split"].rpartition("-")[2]
        if split not in ("data", "part"):
            return split
    folders = [part for part in reversed(path.parts[:-1]) if part.lower() in SPLIT_WORDS]
    words = [word for word in re.split(r"[\W_]+", path.stem) if word.lower() in SPLIT_WORDS]
    return next(iter((*folders, *words)), "train")


def _open(place: Place, file: SourceFile) -> ParquetTable | ArrowTable:
    if file.name.endswith(".arrow"):
        return ArrowTable(os.fsencode(place.path(file.name)), file.size)
    with _medium():
        opened = place.open(file.name)
    try:
        return ParquetTable(_WatchedFile(opened), file.size)
    except Exception:
        opened.close()
        raise


def _look(place: Place, config: SourceConfig, choose: Choose, name: str) -> Listing:
    """Read one footer; a failed medium ends the listing, a bad file is one refused item."""
    file = SourceFile(name=name, size=-1, stamp="")
    try:
        with _medium():
            file = place.look(name)
        with closing(_open(place, file)) as table:
            choose(table.schema, config.reading)
            return file, table.group_rows()
    except RefusedEntryError as error:
        return file, error
    except _MediumError as error:
        words = shown_words(error.__cause__ or error)
        raise SourceError(f"{place.address}: {shown_name(name)}: cannot be read: {words}") from error
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        return file, RefusedEntryError("damaged table", shown_words(error))


def _list_items(place: Place, kind: str, listings: Iterable[Listing]) -> Iterator[ItemRow]:
    rows, fault = 0, ""
    for file, found in listings:
        name = shown_name(file.name)
        where = {"file": file.name, "size": file.size, "stamp": file.stamp}
        if isinstance(found, RefusedEntryError):
            fault = fault or f"no table can be read: {name}: {found.detail or found.reason}"
            yield list_item(kind, name, {**where, "refused": found.reason, "detail": found.detail})
            continue
        for number, (group, row) in enumerate(
            (group, row) for group, count in enumerate(found) for row in range(count)
        ):
            yield list_item(kind, f"{name}#{number}", {**where, "group": group, "row": row})
        rows += sum(found)
    if not rows:
        raise SourceError(f"{place.address}: {fault or 'the tables have no rows'}")
    log.info("%s: listed %d rows", place.address, rows)


def read_rows(
    items: Sequence[ItemRow], config: SourceConfig, *, choose: Choose
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    """Yield each item of a shard with its row, or with the reason why there is none."""
    place = open_place(config.path)
    located: list[Located] = [(item, json.loads(item.locator)) for item in items]
    for _, some in groupby(located, key=lambda both: both[1]["file"]):
        yield from _read_file(place, list(some), config, choose)


def _read_file(
    place: Place, some: Sequence[Located], config: SourceConfig, choose: Choose
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    """Read the items of one file; each gets its row or a reason in any case."""
    first = some[0][1]
    try:
        if "refused" in first:
            raise RefusedEntryError(first["refused"], first["detail"])
        with _medium():
            file = place.look(first["file"], first)
        table = _open(place, file)
        columns = choose(table.schema, config.reading)
    except Exception as error:  # noqa: BLE001 - the boundary to hostile files, and to stores of any kind
        yield from ((item, _unread(item, error)) for item, _ in some)
        return
    with closing(table):
        for group, members in groupby(some, key=lambda both: both[1]["group"]):
            yield from _read_group(table, list(members), group=group, columns=columns)


def _read_group(
    table: ParquetTable | ArrowTable, some: Sequence[Located], *, group: int, columns: dict[str, str]
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    done = 0
    try:
        batches = table.read_group(group, list(columns), [place["row"] for _, place in some])
        for (item, _), batch in zip(some, batches, strict=True):
            done += 1
            try:
                yield item, {columns[name]: value for name, value in to_record(batch).items()}
            except Exception as error:  # noqa: BLE001 - a row of undecodable text or impossible offsets
                yield item, refuse(item, RefusedEntryError("damaged row", shown_words(error)))
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        yield from ((item, _unread(item, error)) for item, _ in some[done:])


def _unread(item: ItemRow, error: Exception) -> Dropped | Failed:
    if isinstance(error, _MediumError) and isinstance(error.__cause__, Exception):
        return refuse(item, error.__cause__)
    if isinstance(error, RefusedEntryError):
        return refuse(item, error)
    return refuse(item, RefusedEntryError("damaged table", shown_words(error)))
