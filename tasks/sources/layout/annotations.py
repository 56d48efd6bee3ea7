"""Check annotations that come with a data set: JSON files, JSON lines, paths, texts.

Annotations are hostile: files, lines, texts and counts have limits, and paths may not leave their folder. What spoils
one record raises ``RefusedEntryError``, which readers turn into an item that is dropped with its reason; what spoils
the source raises ``SourceError``. Reads local files; no network.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.folder import shown_name

T = TypeVar("T")
MANIFEST_BYTES = 512 << 20
"""Annotations that are read as a whole may have this many bytes: far above any that are known."""
LINE_BYTES = 8 << 20
"""Longest line; those of Localized Narratives have 27 thousand bytes on average."""
TEXTS, TEXT_CHARACTERS = 1000, 100_000
"""Texts of one item, and their characters together."""
PATH_CHARACTERS = 1000
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]")
"""How addresses and paths with a drive letter begin."""


class RefusedEntryError(SourceError):
    """Say that a record of the annotations is not usable: a constant ``reason``, and the particulars in ``detail``."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


def check_path(path: object) -> str:
    """Return a relative path that stays below its folder, going by its letters.

    Raises:
        RefusedEntryError: it is none.
    """
    if not isinstance(path, str):
        raise RefusedEntryError("no path of an image", f"a {type(path).__name__}")
    if not path or len(path) > PATH_CHARACTERS or not _is_unicode(path) or "\0" in path:
        raise RefusedEntryError("no path of an image", shown_name(path[:200]))
    parts = path.replace("\\", "/").split("/")
    if not PurePosixPath(path).name or not parts[0] or ".." in parts or _ADDRESS.match(path):
        raise RefusedEntryError("path leaves the folder", shown_name(path[:200]))
    return path


def check_texts(value: object) -> tuple[str, ...]:
    """Return one text or a list of texts without the blank ones.

    Raises:
        RefusedEntryError: it is something else, or too much.
    """
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise RefusedEntryError("captions are not texts")
    if len(values) > TEXTS or sum(map(len, values)) > TEXT_CHARACTERS:
        raise RefusedEntryError("too much text", f"{len(values)} texts, {sum(map(len, values))} characters")
    if not all(map(_is_unicode, values)):
        raise RefusedEntryError("text is not Unicode")
    return tuple(text.strip() for text in values if text.strip())


def load_json(path: Path, kind: type[T]) -> T:
    """Return what a JSON file holds.

    Raises:
        SourceError: it cannot be read, is too large, no JSON, or JSON of another kind.
    """
    try:
        if path.stat().st_size > MANIFEST_BYTES:
            raise SourceError(f"{path}: has {path.stat().st_size} bytes; annotations may have {MANIFEST_BYTES}")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, kind):
        wanted = "an object" if kind is dict else "a list"
        raise SourceError(f"{path}: must hold {wanted}, not {type(found).__name__}")
    return found


def load_lists(path: Path) -> dict[str, list[Any]]:
    """Return a JSON object of lists, like splits and their members.

    Raises:
        SourceError: it is something else.
    """
    found = load_json(path, dict)
    for name, values in found.items():
        if not isinstance(values, list):
            raise SourceError(f"{path}: {shown_name(name)} must be a list, not {type(values).__name__}")
    return found


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line that is not blank; ``None`` for one that is too long.

    Raises:
        SourceError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_BYTES + 1):
                number += 1
                if len(line) > LINE_BYTES and not line.endswith(b"\n"):
                    while (rest := file.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    yield number, None
                elif line.strip():
                    yield number, line
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


def parse_record(line: bytes | None) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        RefusedEntryError: it holds none.
    """
    if line is None:
        raise RefusedEntryError("line too long", f"the limit is {LINE_BYTES} bytes")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RefusedEntryError("damaged line", str(error)[:200]) from error
    return check_record(record)


def check_record(record: object) -> dict[str, Any]:
    """Return a record that is a JSON object.

    Raises:
        RefusedEntryError: it is something else.
    """
    if not isinstance(record, dict):
        raise RefusedEntryError("no record", f"a {type(record).__name__} where an object belongs")
    return record


def _is_unicode(text: str) -> bool:
    """Say whether a text can be stored; JSON can name halves of characters, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
