"""Read annotations that come with a data set: JSON files, JSON lines, texts.

Annotations may be hostile: files, lines, texts and counts have limits. A fault of one record raises
``RefusedEntryError``, which readers turn into a dropped item with its reason; a fault of the source
raises ``SourceError``. Reads local files; no network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.reader import RefusedEntryError, escape_name, is_unicode

T = TypeVar("T")
Record = Mapping[str, Any]
MAX_FILE_BYTES = 1 << 30
"""Maximum size of annotations that are read as a whole, far above any known ones."""
MAX_LINE_BYTES = 8 << 20
"""Maximum size of a line; those of Localized Narratives have 27 thousand bytes on average."""
MAX_TEXTS = 1000
"""Maximum texts of one item."""
MAX_CHARACTERS = 100_000
"""Maximum total characters of the texts of one item."""
MAX_WORD = 1000
"""Maximum characters of a licence, group, split or id."""
NO_TEXTS = "captions are not texts"
UNREAD = "a field was not read"
"""Remark on an image whose captions, licence or group cannot be used."""
CAPTIONS = ("caption", "captions", "text")
"""Usual names of the field that holds captions."""
LICENCES = ("licence", "license")


def check_texts(value: object, *, keep_blank: bool = False) -> tuple[str, ...]:
    """Return a text or list of texts, by default without blank ones; refuse anything else."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise RefusedEntryError(NO_TEXTS)
    if not all(isinstance(text, str) for text in values):
        raise RefusedEntryError(NO_TEXTS)
    characters = sum(map(len, values))
    if len(values) > MAX_TEXTS or characters > MAX_CHARACTERS:
        raise RefusedEntryError("too much text", f"{len(values)} texts, {characters} characters")
    if not all(map(is_unicode, values)):
        raise RefusedEntryError("text is not Unicode")
    texts = [text.strip() for text in values]
    return tuple(texts if keep_blank else filter(None, texts))


def read_texts(record: Record, fields: Sequence[str], remarks: list[str]) -> tuple[str, ...]:
    """Return the distinct texts of these fields; add a remark on each that is no text or list."""
    texts: list[str] = []
    for field in fields:
        value = record.get(field)
        if value is None:
            continue
        try:
            texts += check_texts(value)
        except RefusedEntryError as refused:
            remarks.append(f"{UNREAD}: {escape_name(field)}: {refused}")
            if refused.reason == NO_TEXTS:
                texts += usable_texts(value)
    return tuple(dict.fromkeys(texts))


def read_word(record: Record, fields: Sequence[str], remarks: list[str]) -> str:
    """Return the first of these fields as text; add a remark on a field of another type."""
    try:
        return check_word(record, *fields)
    except RefusedEntryError as refused:
        remarks.append(f"{UNREAD}: {' or '.join(fields)}: {refused.reason}")
        return ""


def usable_texts(value: object) -> tuple[str, ...]:
    """Return the texts in a value, without blank or overlong ones and other types."""
    values = value if isinstance(value, list) else [value]
    texts: list[str] = []
    for element in values[:MAX_TEXTS]:
        if isinstance(element, str):
            text = clean_text(element)
            if text and len(text) <= MAX_CHARACTERS:
                texts.append(text)
    return tuple(texts)


def check_word(record: Record, *fields: str) -> str:
    """Return the first of these fields as text; refuse all but texts and whole numbers."""
    values = [record[field] for field in fields if record.get(field) is not None]
    value = values[0] if values else ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    if not isinstance(value, str) or len(value) > MAX_WORD:
        raise RefusedEntryError("damaged field", " or ".join(fields))
    return "".join(check_texts(value))


def clean_text(text: str) -> str:
    """Return a stripped text; lone surrogates, which JSON can spell, are replaced."""
    return text.strip().encode("utf-8", "replace").decode("utf-8")


def choose_splits(
    address: str | Path, requested: Sequence[str], available: Sequence[str]
) -> list[str]:
    """Return the splits to read, in the source's order; ``SourceError`` for an unknown one."""
    unknown = sorted(set(requested) - set(available))
    if unknown:
        names = ", ".join(map(repr, unknown))
        choices = ", ".join(map(escape_name, available)) or "none"
        raise SourceError(f"{address}: reading.splits has unknown {names}; choose from: {choices}")
    return [name for name in available if not requested or name in requested]


def load_json(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file; ``SourceError`` if too large, or not of this type."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise SourceError(
                f"{path}: has {size} bytes; at most {MAX_FILE_BYTES} are read: split it"
            )
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: is not JSON: {error}") from error
    if not isinstance(content, kind):
        expected = "an object" if kind is dict else "a list"
        raise SourceError(f"{path}: must hold {expected}, not {type(content).__name__}")
    return content


def load_lists(path: Path) -> dict[str, list[Any]]:
    """Return a JSON object of lists, such as splits and their members; else ``SourceError``."""
    lists = load_json(path, dict)
    for name, values in lists.items():
        if not isinstance(values, list):
            kind = type(values).__name__
            raise SourceError(f"{path}: {escape_name(name)} must be a list, not {kind}")
    return lists


def stream_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each non-blank line; ``None`` for one that is too long."""
    try:
        with path.open("rb") as file:
            yield from stream_file_lines(file)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


def stream_file_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield the lines of an open file, as ``stream_lines`` does."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(file)
            yield number, None
        elif line.strip():
            yield number, line


def _skip_line(file: BinaryIO) -> None:
    while piece := file.readline(MAX_LINE_BYTES):
        if piece.endswith(b"\n"):
            return


def parse_record(line: bytes | None) -> dict[str, Any]:
    """Return the JSON object of a line; ``RefusedEntryError`` if it holds none."""
    if line is None:
        raise RefusedEntryError("line too long", f"the limit is {MAX_LINE_BYTES} bytes")
    try:
        return check_record(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise RefusedEntryError("damaged line", str(error)[:200]) from error


def check_record(record: object) -> dict[str, Any]:
    """Return a record that is a JSON object; ``RefusedEntryError`` for anything else."""
    if not isinstance(record, dict):
        raise RefusedEntryError("no record", f"a {type(record).__name__} where an object belongs")
    return record
