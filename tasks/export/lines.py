"""Write rows as JSON, one record per line or one list, with images as files; and read lines back.

Memory is one record. Files are ``data/train.jsonl``, or ``data/train-00000.jsonl`` and so on if the
reader has limits. Images are below ``images``, named by their content, each written once.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pairwright.schemas.plain_text import to_json_line
from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.tasks.export.form import (
    ExportSettings,
    RowWriter,
    Sizes,
    check_image,
    ending_of,
    require,
    wrap_row_errors,
)

IMAGES = "images"
Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Layout of the files."""

    ending: str = "jsonl"
    head: str = ""
    between: str = ""
    end: str = ""
    rows_per_file: int = 0
    """Maximum rows per file; 0: no limit."""
    bytes_per_file: int = 0
    """Maximum bytes per file; 0: no limit."""


JSON_LINES = Shape()
JSON_LIST = Shape(ending="json", head="[\n", between=",\n", end="\n]\n")


@dataclass
class MediaFolder:
    """Images below ``folder``/images, in 256 folders."""

    folder: Path
    uncounted: int = 0  # bytes of image files not yet counted with a record

    def put(self, data: bytes) -> str:
        """Write an image unless it exists; return its path below the folder.

        Names never come from the data.
        """
        key = make_key(data)
        name = f"{IMAGES}/{key[:2]}/{key}.{ending_of(data)}"
        path = self.folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self.uncounted += len(data)
        return name


ToRecords = Callable[[PreferenceRow, MediaFolder, ExportSettings], Iterable[tuple[str, Record]]]
"""Function that returns a row's records, each with its file's name; raises ``UnheldError`` before
it puts an image."""


def open_lines(
    to_records: ToRecords,
    shape: Shape = JSON_LINES,
    finish: Callable[[Path, ExportSettings, Sizes], None] | None = None,
) -> Callable[[Path, ExportSettings], Any]:
    """Return the opener of a JSON form; ``finish`` may complete its folder."""

    @contextmanager
    def opens(folder: Path, setting: ExportSettings) -> Generator[RowWriter]:
        media = MediaFolder(folder)
        writer = RowWriter(
            lambda row: to_records(row, media, setting),
            lambda name: _Lines(media, name, shape),
        )
        with closing(writer):
            yield writer
        if finish:
            finish(folder, setting, writer.sizes())

    return opens


class _Lines:
    """Records of one name, in one or several files, with the size of their images."""

    def __init__(self, media: MediaFolder, name: str, shape: Shape) -> None:
        self.rows = 0
        self.size_bytes = 0
        self._media = media
        self._name = name
        self._shape = shape
        self._number = 0
        self._file: IO[bytes] | None = None
        self._file_rows = 0
        self._file_bytes = 0

    def write(self, record: Record) -> None:
        shape = self._shape
        line = to_json_line(record).encode()
        if not shape.between:
            line += b"\n"
        if self._file and self._is_full(len(line)):
            self.close()
            self._number += 1
        before = shape.between if self._file else shape.head
        self._put(before.encode() + line)
        self.rows += 1
        self._file_rows += 1
        self.size_bytes += self._media.uncounted
        self._media.uncounted = 0

    def _is_full(self, size: int) -> bool:
        """Return whether a record of this size would exceed a limit of the open file."""
        max_rows = self._shape.rows_per_file
        max_bytes = self._shape.bytes_per_file
        is_long = bool(max_rows) and self._file_rows == max_rows
        is_large = bool(max_bytes) and self._file_bytes + size > max_bytes
        return is_long or is_large

    def _put(self, data: bytes) -> None:
        if self._file is None:
            folder = self._media.folder / "data"
            folder.mkdir(parents=True, exist_ok=True)
            is_cut = self._shape.rows_per_file or self._shape.bytes_per_file
            number = f"-{self._number:05d}" if is_cut else ""
            path = folder / f"{self._name}{number}.{self._shape.ending}"
            self._file = path.open("wb")
        self._file.write(data)
        self._file_bytes += len(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        if self._file:
            self._put(self._shape.end.encode())
            self._file.close()
        self._file = None
        self._file_rows = 0
        self._file_bytes = 0


def read_lines(check: Callable[[Path, Record], None]) -> Callable[[Path, Any], Iterator[str]]:
    """Return the reader of a form of JSON Lines, from the function that checks a record."""

    def check_folder(
        folder: Path,
        processor: Any,  # noqa: ARG001 - as for every form
    ) -> Iterator[str]:
        for path in sorted((folder / "data").glob("*.jsonl")):
            with path.open(encoding="utf-8") as lines:
                for number, line in enumerate(lines, start=1):
                    where = f"data/{path.name}, line {number}"
                    with wrap_row_errors(where):
                        check(folder, json.loads(line))
                    yield where

    return check_folder


def decode_files(folder: Path, names: Any) -> int:
    """Check the images of these names, below the folder, and return their number."""
    require(isinstance(names, list), "no file names")
    for name in names:
        check_image((folder / name).read_bytes())
    return len(names)
