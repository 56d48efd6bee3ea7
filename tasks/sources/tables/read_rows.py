"""List and read the rows of a source's tables, for the readers of Parquet and of the data sets that come in it.

Lists one ``ItemRow`` per row from the files' footers, without reading data. Reads the items of a shard: each file is
opened once, each row group read once, of it only the columns that the reader asks for, a row at a time.

An item's key hashes the file's relative path, size and version mark and the row's number, so that neither listing again
nor moving a folder reads anything again. A file that is no table, or lacks the columns, is one item that is dropped
with its reason; where no file is any good, the source is refused.
"""

import json
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, BinaryIO

from pairwright.schemas.config import ReadingConfig, SourceConfig
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, Failed, ItemRow, make_key
from pairwright.tasks.sources.folder import shown_name
from pairwright.tasks.sources.layout.pairs import dropped
from pairwright.tasks.sources.tables.open_table import ArrowTable, ParquetTable, to_record
from pairwright.tasks.sources.tables.table_files import Place, TableFile, find_tables, open_place

if TYPE_CHECKING:
    import pyarrow as pa

    from pairwright.tasks.sources.tables.open_table import Table

log = logging.getLogger(__name__)

Record = dict[str, Any]
"""The wanted columns of one row, under the reader's own names."""
Choose = Callable[["pa.Schema", ReadingConfig], dict[str, str]]
"""Returns the columns that are read of a table, each with its name in a record; raises ``WrongColumnsError``."""
Located = tuple[ItemRow, dict[str, Any]]
"""An item and what its locator says."""
LOOKING_AHEAD = 8
"""Remote footers that are fetched at once."""


class WrongColumnsError(SourceError):
    """Say that a table does not have the columns that its reader needs."""


class _RefusedError(Exception):
    """Say that a file is not read, by a rule."""


class _WatchedFile:
    """Pass reads on and keep what the medium raises: pyarrow reports a failed disk and damaged data alike."""

    closed = False

    def __init__(self, file: BinaryIO, faults: list[Exception]) -> None:
        self._file, self._faults = file, faults

    def read(self, size: int = -1) -> bytes:
        with _keeping(self._faults):
            return self._file.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        with _keeping(self._faults):
            return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self.closed = True
        self._file.close()

    def flush(self) -> None:
        """Do nothing: pyarrow asks for it."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False


@contextmanager
def _keeping(faults: list[Exception]) -> Generator[None]:
    try:
        yield
    except Exception as error:
        faults.append(error)
        raise


@dataclass(frozen=True, slots=True)
class _Footer:
    """Be what is known of a file without its data: rows per group, or why it is refused."""

    file: TableFile
    groups: Sequence[int] = ()
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    """Be the tables of one place, as one reader reads them."""

    place: Place
    config: SourceConfig
    choose: Choose

    def open(self, relative: str, size: int, faults: list[Exception]) -> "Table":
        """Open a table; what the medium raises is kept in ``faults``."""
        if self.place.is_local and relative.endswith(".arrow"):
            return ArrowTable(os.fsencode(self.place.path(relative)), size)
        with _keeping(faults):
            file = self.place.open(relative)
        try:
            return ParquetTable(_WatchedFile(file, faults), size)
        except Exception:
            file.close()
            raise

    def footer(self, file: TableFile) -> _Footer:
        """Read one footer; a medium that fails ends the listing, a bad file is one refused item."""
        faults: list[Exception] = []
        try:
            with closing(self.open(file.relative, file.size, faults)) as table:
                self.choose(table.schema, self.config.reading)
                return _Footer(file, table.group_rows())
        except WrongColumnsError as error:
            return _Footer(file, reason="wrong columns", detail=str(error))
        except Exception as error:
            if faults and not isinstance(faults[0], PermissionError | FileNotFoundError):
                words = f"{shown_name(file.relative)}: cannot be read: {shown_words(faults[0])}"
                raise SourceError(f"{self.place.address}: {words}") from error
            return _Footer(file, reason="unreadable file" if faults else "damaged table", detail=shown_words(error))

    def read_file(self, where: Sequence[Located]) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
        """Read the items of one file; whatever happens, each gets its row or a reason."""
        first = where[0][1]
        faults: list[Exception] = []
        try:
            if "refused" in first:
                raise _RefusedError(first["refused"], first["detail"])
            with _keeping(faults):
                seen = self.place.look(first["file"])
            if seen != (first["size"], first["stamp"]):
                raise _RefusedError("changed since it was listed", "")
            table = self.open(first["file"], first["size"], faults)
            columns = self.choose(table.schema, self.config.reading)
        except Exception as error:  # noqa: BLE001 - the boundary to hostile files, and to stores of any kind
            yield from ((item, _unread(item, error, faults)) for item, _ in where)
            return
        with closing(table):
            for group, some in groupby(where, key=lambda both: both[1]["group"]):
                yield from _read_group(table, list(some), group=group, columns=columns, faults=faults)


def list_rows(config: SourceConfig, limit: int | None, *, choose: Choose) -> Iterator[ItemRow]:
    """Yield one item per row of the source's tables, in order: the first ``limit``, or all.

    Raises:
        SourceError: there is no table, no such split, none has the columns, or the place cannot be reached.
    """
    place = open_place(config.path)
    files = find_tables(place, config.reading.splits)
    yield from islice(_items(_Source(place, config, choose), files), limit)


def read_rows(
    items: Sequence[ItemRow], config: SourceConfig, *, choose: Choose
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    """Yield each item of a shard with its row, or with why there is none."""
    source = _Source(open_place(config.path), config, choose)
    where: list[Located] = [(item, json.loads(item.locator)) for item in items]
    for _, some in groupby(where, key=lambda both: (both[1]["file"], "refused" in both[1])):
        yield from source.read_file(list(some))


def shown_words(error: Exception) -> str:
    """Return what an error says, cut and escaped."""
    return shown_name(f"{type(error).__name__}: {error}"[:300])


def _items(source: _Source, files: Sequence[TableFile]) -> Iterator[ItemRow]:
    refused: list[_Footer] = []
    rows = 0
    for footer in _footers(source, files):
        if footer.reason and not rows:
            refused.append(footer)  # whether the source is any good is not known yet
        elif footer.reason:
            yield _refused_item(source.config.kind, footer)
        else:
            yield from (_refused_item(source.config.kind, one) for one in refused)
            refused = []
            yield from _row_items(source.config.kind, footer)
            rows += sum(footer.groups)
    address = source.place.address
    if refused:
        name = shown_name(refused[0].file.relative)
        raise SourceError(f"{address}: no table can be read: {name}: {refused[0].detail or refused[0].reason}")
    if not rows:
        raise SourceError(f"{address}: the tables have no rows")
    log.info("%s: listed %d rows of %d files", address, rows, len(files))


def _footers(source: _Source, files: Sequence[TableFile]) -> Iterator[_Footer]:
    if source.place.is_local:
        yield from map(source.footer, files)
        return
    with ThreadPoolExecutor(LOOKING_AHEAD) as threads:
        for start in range(0, len(files), LOOKING_AHEAD):
            yield from threads.map(source.footer, files[start : start + LOOKING_AHEAD])


def _row_items(kind: str, footer: _Footer) -> Iterator[ItemRow]:
    file = footer.file
    start, name = _locator(file), shown_name(file.relative)
    number = 0
    for group, rows in enumerate(footer.groups):
        for row in range(rows):
            key = make_key(kind, os.fsencode(file.relative), file.size, file.stamp, number)
            locator = f'{start}, "group": {group}, "row": {row}}}'
            yield ItemRow(key=key, source_key=key, subject=key, name=f"{name}#{number}", locator=locator)
            number += 1


def _refused_item(kind: str, footer: _Footer) -> ItemRow:
    file = footer.file
    key = make_key(kind, os.fsencode(file.relative), file.size, file.stamp, footer.reason)
    words = json.dumps({"refused": footer.reason, "detail": footer.detail})
    locator = f"{_locator(file)}, {words[1:]}"
    return ItemRow(key=key, source_key=key, subject=key, name=shown_name(file.relative), locator=locator)


def _locator(file: TableFile) -> str:
    """Return the beginning of the JSON of a file's rows; ASCII, since names may be undecodable bytes."""
    return json.dumps({"file": file.relative, "size": file.size, "stamp": file.stamp})[:-1]


def _read_group(
    table: "Table", some: Sequence[Located], *, group: int, columns: dict[str, str], faults: Sequence[Exception]
) -> Iterator[tuple[ItemRow, Record | Dropped | Failed]]:
    done = 0
    try:
        batches = table.read_group(group, list(columns), [place["row"] for _, place in some])
        for (item, _), batch in zip(some, batches, strict=True):
            done += 1
            yield item, _record(item, batch, columns)
    except Exception as error:  # noqa: BLE001 - pyarrow raises anything on hostile files
        yield from ((item, _unread(item, error, faults)) for item, _ in some[done:])


def _record(item: ItemRow, batch: "pa.RecordBatch", columns: dict[str, str]) -> Record | Dropped:
    try:
        return {columns[name]: value for name, value in to_record(batch).items()}
    except Exception as error:  # noqa: BLE001 - a row of undecodable text or impossible offsets
        return dropped(item, "damaged row", shown_words(error))


def _unread(item: ItemRow, error: Exception, faults: Sequence[Exception]) -> Dropped | Failed:
    if isinstance(error, _RefusedError):
        return dropped(item, *error.args)
    if isinstance(error, WrongColumnsError):
        return dropped(item, "wrong columns", str(error))
    if not faults:
        return dropped(item, "damaged table", shown_words(error))
    if isinstance(faults[0], FileNotFoundError):
        return dropped(item, "missing file")
    if isinstance(faults[0], PermissionError):
        return dropped(item, "unreadable file")
    # Disks and networks recover: the item is owed again.
    return Failed(source_key=item.key, reason="I/O error", detail=f"{item.name}: {shown_words(faults[0])}")
