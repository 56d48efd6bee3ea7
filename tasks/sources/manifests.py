"""Read the records of a manifest: JSON Lines, a JSON list, CSV or Parquet, plain or gzipped.

Files may be hostile: lines, whole files and their uncompressed size have limits. Reads local files;
no network.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.annotations import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    Record,
    check_record,
    parse_record,
    stream_file_lines,
)
from pairwright.tasks.sources.read_entry import EXTENSIONS
from pairwright.tasks.sources.reader import RefusedEntryError, describe_error

LINES = (".jsonl", ".ndjson")
LISTS = (".json",)
TABLES = {".csv": (",", ";", "\t"), ".tsv": ("\t",)}
"""Endings of tables, each with what may separate columns: what the first line has most often."""
PARQUET = (".parquet",)
GZIPPED = ".gz"
ENDINGS = (*LINES, *LISTS, *TABLES)
"""Endings of manifests, each also with ``.gz``."""
ALL_ENDINGS = (*ENDINGS, *(f"{ending}{GZIPPED}" for ending in ENDINGS))

Named = tuple[str, Record | RefusedEntryError]
"""Place of a record in its file, and the record or why there is none."""


def ending_of(path: Path) -> str:
    """Return the ending of a manifest's name in small letters, without ``.gz``."""
    return Path(path.name.lower().removesuffix(GZIPPED)).suffix


def stream_records(path: Path) -> Iterator[Named]:
    """Yield the records of a manifest; ``SourceError`` if the file cannot be read."""
    ending = ending_of(path)
    try:
        if ending in PARQUET:
            yield from _stream_parquet(path)
            return
        with ExitStack() as stack:
            file: Any = stack.enter_context(path.open("rb"))
            if path.name.lower().endswith(GZIPPED):
                file = stack.enter_context(gzip.GzipFile(fileobj=file))
            if ending in LISTS:
                yield from _stream_list(path, file)
            elif ending in TABLES:
                yield from _stream_table(file, TABLES[ending])
            else:
                yield from _stream_lines(file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise SourceError(f"{path}: is not gzipped, or damaged: {error}") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def _stream_lines(file: BinaryIO) -> Iterator[Named]:
    for number, line in stream_file_lines(file):
        try:
            yield f"line {number}", parse_record(line)
        except RefusedEntryError as refused:
            yield f"line {number}", refused


def _stream_list(path: Path, file: BinaryIO) -> Iterator[Named]:
    data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise SourceError(f"{path}: has more than {MAX_FILE_BYTES} bytes: split it")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: is not JSON: {error}") from error
    if isinstance(content, dict):  # {"data": [...]}, with information beside it
        lists = [value for value in content.values() if isinstance(value, list)]
        content = lists[0] if len(lists) == 1 else content
    if not isinstance(content, list):
        raise SourceError(f"{path}: must hold a list of objects, not {type(content).__name__}")
    for number, value in enumerate(content, start=1):
        try:
            yield f"record {number}", check_record(value)
        except RefusedEntryError as refused:
            yield f"record {number}", refused


def _stream_table(file: BinaryIO, separators: Sequence[str]) -> Iterator[Named]:
    """Yield the rows of a table; empty cells are left out.

    A first line that names an image is a row: its columns are "column 1", ...
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = _text_lines(file)
    first = next(lines, "")
    separator = max(separators, key=first.count)
    rows = csv.DictReader(chain([first], lines), delimiter=separator)
    names = rows.fieldnames or ()
    if any(Path(name.strip().lower()).suffix in EXTENSIONS for name in names):
        columns = [f"column {number}" for number in range(1, len(names) + 1)]
        rows = csv.DictReader(chain([first], lines), columns, delimiter=separator)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"line {rows.line_num}", RefusedEntryError("damaged line", str(error)[:200])
            continue
        record = {name: value for name, value in row.items() if name and value}
        yield f"line {rows.line_num}", record


def _text_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a table; bytes that are not UTF-8 become surrogates."""
    for number, line in stream_file_lines(file):
        if line is None:
            raise SourceError(f"line {number} of a table has more than {MAX_LINE_BYTES} bytes")
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        yield line.decode(encoding, "surrogateescape")


def _stream_parquet(path: Path) -> Iterator[Named]:
    """Yield the rows of a table without its columns of bytes and of structures."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            columns: list[str] = []
            for field in table.schema_arrow:
                kind = getattr(field.type, "value_type", field.type)
                if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                    columns.append(field.name)
            number = 0
            for batch in table.iter_batches(256, columns=columns):
                batch.validate(full=True)
                for record in batch.to_pylist():
                    number += 1
                    yield f"row {number}", record
    except pa.ArrowException as error:
        raise SourceError(f"{path}: cannot be read: {describe_error(error)}") from error
