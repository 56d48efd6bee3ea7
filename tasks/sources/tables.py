"""Read the rows of tables: Parquet files, and what ``datasets`` saved, on a local disk or a remote store.

Lists one ``ItemRow`` per row from the files' footers, without reading data. Reads the items of a shard: each file is
opened once, each row group read once, of it only the columns that the reader asks for, a row at a time. In a folder of
``save_to_disk`` (``state.json``, ``dataset_dict.json``) the Arrow files that it names are its tables.

A table's split is what its name says (``data/train-00000-of-00002.parquet``), or a folder's or a word's in its name
that is one of ``SPLIT_WORDS``; else it is "train", as on the Hugging Face Hub.

An item's key hashes the file's relative path, size and version mark and the row's number, so that neither listing again
nor moving a folder reads anything again. Files are hostile: a file that is no table, or lacks the columns, is one item
that is dropped with its reason; where no file is any good, the source is refused.
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

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow, Row, make_key
from pairwright.tasks.sources.annotations import load_json
from pairwright.tasks.sources.find_files import Place, SourceFile, open_place
from pairwright.tasks.sources.open_table import ArrowTable, Cell, ParquetTable, to_record
from pairwright.tasks.sources.read_entry import (
    About,
    Picture,
    RefusedEntryError,
    is_below,
    read_below,
    read_image,
    read_one,
    read_pair,
    refuse,
    shown_name,
    shown_words,
)
from pairwright.tasks.sources.reader import Given, Read, Reader, never

log = logging.getLogger(__name__)

SPLIT_WORDS = ("train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval", "evaluation")
NUMBERED = re.compile(r"(?P<split>.+)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?")
"""What the Hub calls the files of a split."""
DICT, STATE = "dataset_dict.json", "state.json"
LOOKING_AHEAD = 8
"""Remote footers that are fetched at once."""
ROWS_PER_SHARD = 256
"""A row group is read from its beginning to the shard's last row of it: small shards would read large groups often."""

Record = dict[str, Any]
"""The wanted columns of one row, under the reader's own names."""
Choose = Callable[[pa.Schema, ReadingConfig], dict[str, str]]
"""Returns the columns that are read of a table, each with its name in a record; refuses one that lacks them."""
Located = tuple[ItemRow, dict[str, Any]]
"""An item and what its locator says."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table, and where its images are."""

    item: ItemRow
    record: Record
    config: SourceConfig
    folder: str
    """Local folder to which paths of images are relative; empty: a remote source without one."""

    def picture(self, cell: Cell, captions: tuple[str, ...] = (), part: str = "") -> Picture:
        """Return an image's bytes under a name that people recognise; one that is a path is read from the folder.

        Raises:
            RefusedEntryError: it is not to be had.
            OSError: the disk fails.
        """
        name = shown_name(f"{self.item.name} {part or Path(cell.path[-200:]).name}".strip())
        if cell.data is not None:
            return Picture(data=cell.data, name=name, captions=captions)
        if not self.folder:
            raise RefusedEntryError("image is not in the table", shown_name(cell.path[:200]))
        return Picture(data=read_below(self.folder, cell.path, self.config.images), name=name, captions=captions)

    def read_image(self, picture: Picture, about: About) -> ImageRow:
        """Return one of its images."""
        return read_image(self.item, picture, self.config, about)

    def read_pair(self, pictures: Sequence[Picture], about: About) -> list[ImageRow | PairRow]:
        """Return two of its images and their pair."""
        return read_pair(self.item, pictures, self.config, about)


def table_reader(
    kind: str,
    choose: Choose,
    read_row: Callable[[TableRow], Iterable[Given]],
    *,
    about: str,
    example: str,
    details: str,
    brings: tuple[type[Row], ...] = (),
    recognises: Callable[[str], bool] = never,
) -> Reader:
    """Return the reader of a data set of tables; ``read_row`` raises ``RefusedEntryError`` for what is no use."""
    return Reader(
        kind=kind,
        about=about,
        example=example,
        details=details,
        list_items=partial(list_rows, choose=choose),
        read_items=partial(read_tables, choose=choose, read_row=read_row),
        brings=brings,
        recognises=recognises,
        rows_per_shard=ROWS_PER_SHARD,
    )


def read_tables(
    items: Sequence[ItemRow],
    config: SourceConfig,
    *,
    choose: Choose,
    read_row: Callable[[TableRow], Iterable[Given]],
) -> Iterator[Read]:
    """Yield everything that the rows hold, or why it is not to be had."""
    folder = image_folder(config)
    for item, record in read_rows(items, config, choose=choose):
        if isinstance(record, Dropped | Failed):
            yield record
            continue
        row = TableRow(item, record, config, folder)
        yield from read_one(item, lambda row=row: read_row(row))


def image_folder(config: SourceConfig) -> str:
    """Return the local folder to which paths in rows are relative; empty for a remote source without one."""
    if config.reading.images:
        return config.reading.images
    place = open_place(config.path)
    return place.root if place.is_local else ""


def list_rows(config: SourceConfig, limit: int | None, *, choose: Choose) -> Iterator[ItemRow]:
    """Yield one item per row of the source's tables, in order: the first ``limit``, or all.

    Raises:
        SourceError: there is no table, no such split, none has the columns, or the place cannot be reached.
    """
    place = open_place(config.path)
    yield from islice(_items(_Source(place, config, choose), find_tables(place, config.reading.splits)), limit)


def read_rows(
    items: Sequence[ItemRow], config: SourceConfig, *, choose: Choose
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    """Yield each item of a shard with its row, or with why there is none."""
    source = _Source(open_place(config.path), config, choose)
    where: list[Located] = [(item, json.loads(item.locator)) for item in items]
    for _, some in groupby(where, key=lambda both: (both[1]["file"], "refused" in both[1])):
        yield from source.read_file(list(some))


def find_tables(place: Place, splits: Sequence[str]) -> list[str]:
    """Return the names of the tables of the splits asked for, in order.

    Raises:
        SourceError: there is no table, no such split, or the place cannot be reached.
    """
    found = _saved_tables(place) or {name: split_of(name) for name in place.names((".parquet",))}
    if not found:
        raise SourceError(f"{place.address}: holds no Parquet file and nothing that `datasets` saved")
    there = sorted(set(found.values()))
    if unknown := sorted(set(splits) - set(there)):
        raise SourceError(
            f"{place.address}: reading.splits: there is no split {', '.join(unknown)}; there are: {', '.join(there)}"
        )
    return [name for name in sorted(found, key=os.fsencode) if not splits or found[name] in splits]


def split_of(name: str) -> str:
    """Return the split that a table's path names."""
    path = PurePosixPath(name)
    if match := NUMBERED.fullmatch(path.stem):
        split = match["split"].rpartition("-")[2]
        if split not in ("data", "part"):
            return split
    folders = [part for part in reversed(path.parts[:-1]) if part.lower() in SPLIT_WORDS]
    words = [word for word in re.split(r"[\W_]+", path.stem) if word.lower() in SPLIT_WORDS]
    return next(iter((*folders, *words)), "train")


def _saved_tables(place: Place) -> dict[str, str]:
    """Return the Arrow files that ``save_to_disk`` names, with their splits; none where it did not write the folder."""
    there = "" if place.pattern else next((n for n in (DICT, STATE) if place.system.isfile(place.path(n))), "")
    if there and not place.is_local:
        raise SourceError(f"{place.address}: what `datasets` saved is read from local disks only: copy it there first")
    root = Path(place.root)
    if there == DICT:
        splits = _names(load_json(root / DICT, dict).get("splits"), root / DICT)
        return {name: split for split in splits for name in _saved_files(root, f"{split}/")[0]}
    if there == STATE:
        names, split = _saved_files(root, "")
        return dict.fromkeys(names, split)
    return {}


def _saved_files(root: Path, below: str) -> tuple[list[str], str]:
    """Return the Arrow files of one saved set, and its split."""
    path = root / below / STATE
    state: dict[str, Any] = load_json(path, dict)
    if state.get("_indices_data_files"):
        raise SourceError(f"{path} selects rows; save it again with a newer `datasets`")
    entries = state.get("_data_files")
    files = [one.get("filename") for one in entries if isinstance(one, dict)] if isinstance(entries, list) else None
    split = state.get("_split")
    return [f"{below}{name}" for name in _names(files, path)], split if isinstance(split, str) and split else "train"


def _names(found: Any, path: Path) -> list[str]:
    """Return names out of a saved state, each one file or folder below its own."""
    names = [name for name in found if isinstance(name, str) and is_below(name)] if isinstance(found, list) else []
    if not names or len(names) != len(found):
        raise SourceError(f"{path}: does not name its files: is it what `datasets` saved?")
    return names


class _WatchedFile:
    """A file that keeps what its medium raises: pyarrow reports a failed disk and damaged data alike."""

    def __init__(self, file: BinaryIO, faults: list[Exception]) -> None:
        self._file, self._faults = file, faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        with _keeping(self._faults):
            return self._file.read(size)


@contextmanager
def _keeping(faults: list[Exception]) -> Generator[None]:
    try:
        yield
    except Exception as error:
        faults.append(error)
        raise


@dataclass(frozen=True, slots=True)
class _Footer:
    """What is known of a file without its data: rows per group, or why it is refused."""

    file: SourceFile
    groups: Sequence[int] = ()
    refused: str = ""
    detail: str = ""

    def items(self, kind: str) -> Iterator[ItemRow]:
        """Yield an item per row, or the one that is refused."""
        file, name = self.file, shown_name(self.file.name)
        of_file = (kind, os.fsencode(file.name), file.size, file.stamp)
        # ASCII, since names may be undecodable bytes.
        start = json.dumps({"file": file.name, "size": file.size, "stamp": file.stamp})[:-1]
        if self.refused:
            key = make_key(*of_file, self.refused)
            words = json.dumps({"refused": self.refused, "detail": self.detail})[1:]
            yield ItemRow(key=key, source_key=key, subject=key, name=name, locator=f"{start}, {words}")
        places = ((group, row) for group, rows in enumerate(self.groups) for row in range(rows))
        for number, (group, row) in enumerate(places):
            key = make_key(*of_file, number)
            locator = f'{start}, "group": {group}, "row": {row}}}'
            yield ItemRow(key=key, source_key=key, subject=key, name=f"{name}#{number}", locator=locator)


@dataclass(frozen=True, slots=True)
class _Source:
    """The tables of one place, as one reader reads them."""

    place: Place
    config: SourceConfig
    choose: Choose

    def open(self, file: SourceFile, faults: list[Exception]) -> ParquetTable | ArrowTable:
        """Open a table; what the medium raises is kept in ``faults``."""
        if self.place.is_local and file.name.endswith(".arrow"):
            return ArrowTable(os.fsencode(self.place.path(file.name)), file.size)
        with _keeping(faults):
            opened = self.place.open(file.name)
        try:
            return ParquetTable(_WatchedFile(opened, faults), file.size)
        except Exception:
            opened.close()
            raise

    def footer(self, name: str) -> _Footer:
        """Read one footer; a medium that fails ends the listing, a bad file is one refused item."""
        faults: list[Exception] = []
        file = SourceFile(name=name, size=-1, stamp="")
        try:
            file = self.place.look(name)
            with closing(self.open(file, faults)) as table:
                self.choose(table.schema, self.config.reading)
                return _Footer(file, table.group_rows())
        except RefusedEntryError as error:
            return _Footer(file, refused=error.reason, detail=error.detail)
        except Exception as error:
            if faults and not isinstance(faults[0], PermissionError | FileNotFoundError):
                words = f"{shown_name(name)}: cannot be read: {shown_words(faults[0])}"
                raise SourceError(f"{self.place.address}: {words}") from error
            return _Footer(file, refused="unreadable file" if faults else "damaged table", detail=shown_words(error))

    def read_file(self, where: Sequence[Located]) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
        """Read the items of one file; whatever happens, each gets its row or a reason."""
        first = where[0][1]
        faults: list[Exception] = []
        try:
            if "refused" in first:
                raise RefusedEntryError(first["refused"], first["detail"])
            with _keeping(faults):
                file = self.place.look(first["file"])
            if (file.size, file.stamp) != (first["size"], first["stamp"]):
                raise RefusedEntryError("changed since it was listed")
            table = self.open(file, faults)
            columns = self.choose(table.schema, self.config.reading)
        except Exception as error:  # noqa: BLE001 - the boundary to hostile files, and to stores of any kind
            yield from ((item, _unread(item, error, faults)) for item, _ in where)
            return
        with closing(table):
            for group, some in groupby(where, key=lambda both: both[1]["group"]):
                yield from _read_group(table, list(some), group=group, columns=columns, faults=faults)


def _items(source: _Source, names: Sequence[str]) -> Iterator[ItemRow]:
    refused: list[_Footer] = []
    rows = 0
    for footer in _footers(source, names):
        if footer.refused and not rows:
            refused.append(footer)  # whether the source is any good is not known yet
            continue
        for one in (*refused, footer):
            yield from one.items(source.config.kind)
        refused = []
        rows += sum(footer.groups)
    address = source.place.address
    if refused:
        name = shown_name(refused[0].file.name)
        raise SourceError(f"{address}: no table can be read: {name}: {refused[0].detail or refused[0].refused}")
    if not rows:
        raise SourceError(f"{address}: the tables have no rows")
    log.info("%s: listed %d rows of %d files", address, rows, len(names))


def _footers(source: _Source, names: Sequence[str]) -> Iterator[_Footer]:
    if source.place.is_local:
        yield from map(source.footer, names)
        return
    with ThreadPoolExecutor(LOOKING_AHEAD) as threads:
        for start in range(0, len(names), LOOKING_AHEAD):
            yield from threads.map(source.footer, names[start : start + LOOKING_AHEAD])


def _read_group(
    table: ParquetTable | ArrowTable,
    some: Sequence[Located],
    *,
    group: int,
    columns: dict[str, str],
    faults: Sequence[Exception],
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
        yield from ((item, _unread(item, error, faults)) for item, _ in some[done:])


def _unread(item: ItemRow, error: Exception, faults: Sequence[Exception]) -> Dropped | Failed:
    if not faults and not isinstance(error, RefusedEntryError):
        return refuse(item, RefusedEntryError("damaged table", shown_words(error)))
    return refuse(item, faults[0] if faults else error)
