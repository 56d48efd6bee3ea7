"""Write records as JSON, one on a line: JSON Lines, or one JSON list; files of limited size where a reader has limits.

Memory is one record. ``data/train.jsonl``; where files are limited ``data/train-00000.jsonl`` and so on.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pairwright.tasks.export.form import Sizes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Say what the files look like."""

    ending: str = "jsonl"
    head: str = ""
    between: str = ""
    end: str = ""
    rows_per_file: int = 0
    """0: any number."""
    bytes_per_file: int = 0


JSON_LINES = Shape()
JSON_LIST = Shape(ending="json", head="[\n", between=",\n", end="\n]\n")


class LineWriters:
    """Take records under names such as "train"; use as a context manager."""

    def __init__(self, folder: Path, shape: Shape = JSON_LINES) -> None:
        """Write below ``folder``; no file is made before a name's first record."""
        self.folder, self.shape = folder, shape
        self._files: dict[str, _File] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def add(self, name: str, record: dict[str, Any], *, beside: int = 0) -> None:
        """Take one record, and count what was written ``beside`` it, in bytes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._files.setdefault(name, _File(self.folder, name, self.shape))
        file.write(json.dumps(record, ensure_ascii=False), beside=beside)

    def sizes(self) -> Sizes:
        """Return rows and bytes under each name."""
        return {name: (file.rows, file.size_bytes) for name, file in self._files.items()}


class _File:
    """Write the records of one name, in one file or in several."""

    def __init__(self, folder: Path, name: str, shape: Shape) -> None:
        self.rows = self.size_bytes = 0
        self._folder, self._name, self._shape = folder, name, shape
        self._number = self._in_file = self._file_bytes = 0
        self._open: IO[bytes] | None = None

    def write(self, text: str, *, beside: int) -> None:
        line = text.encode() + (b"" if self._shape.between else b"\n")
        if self._open and self._is_full(len(line)):
            self.close()
            self._number += 1
        self._put((self._shape.between if self._open else self._shape.head).encode() + line)
        self.rows += 1
        self._in_file += 1
        self.size_bytes += beside

    def _is_full(self, more: int) -> bool:
        shape = self._shape
        return bool(
            (shape.rows_per_file and self._in_file == shape.rows_per_file)
            or (shape.bytes_per_file and self._file_bytes + more > shape.bytes_per_file)
        )

    def _put(self, data: bytes) -> None:
        if self._open is None:
            is_cut = self._shape.rows_per_file or self._shape.bytes_per_file
            number = f"-{self._number:05d}" if is_cut else ""
            self._open = (self._folder / f"{self._name}{number}.{self._shape.ending}").open("wb")
        self._open.write(data)
        self._file_bytes += len(data)
        self.size_bytes += len(data)

    def close(self) -> None:
        if self._open:
            self._put(self._shape.end.encode())
            self._open.close()
        self._open, self._in_file, self._file_bytes = None, 0, 0
