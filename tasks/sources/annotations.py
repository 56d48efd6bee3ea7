"""Read annotations that come with a data set: JSON files, JSON lines, texts.

Annotations may be hostile: files, lines, texts and counts have limits. A fault of one record raises
``RefusedEntryError``, which readers turn into a dropped item with its reason; a fault of the source
raises ``SourceError``. Reads local files; no network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources.reader import RefusedEntryError, is_unicode, shown_name

T = TypeVar("T")
Record = Mapping[str, Any]
MAX_FILE_BYTES = 1 << 30
"""Maximum size of annotations that are read as a whole, far above any known ones."""
MAX_LINE_BYTES = 8 << 20
"""Maximum size of a line; those of Localized Narratives have 27 thousand bytes on average."""
MAX_TEXTS, MAX_CHARACTERS = 1000, 100_000
"""Maximum texts of one item, and their total characters."""
MAX_WORD = 1000
"""Maximum characters of a licence, group, split or id."""
CAPTIONS = ("caption", "captions", "text")
"""Usual names of the field that holds captions."""
LICENCES = ("licence", "license")


def check_texts(value: object, *, keep_blank: bool = False) -> tuple[str, ...]:
    """Return a text or list of texts, by default without blank ones; ``RefusedEntryError`` for anything else."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise RefusedEntryError("captions are not texts")
    if len(values) > MAX_TEXTS or sum(map(len, values)) > MAX_CHARACTERS:
        raise RefusedEntryError(
            "too much text", f"{len(values)} texts, {sum(map(len, values))} characters"
        )
    if not all(map(is_unicode, values)):
        raise RefusedEntryError("text is not Unicode")
    return tuple(text.strip() for text in values if keep_blank or text.strip())


def texts_of(value: object) -> tuple[str, ...]:
    """Return the texts in a value, without blank or overlong ones and other types."""
    values = value if isinstance(value, list) else [value]
    texts = (clean_text(one) for one in values[:MAX_TEXTS] if isinstance(one, str))
    return tuple(text for text in texts if text and len(text) <= MAX_CHARACTERS)


def check_word(record: Record, *fields: str) -> str:
    """Return the first of these fields, a text or whole number, as text; ``RefusedEntryError`` if it is neither."""
    value = next((record[field] for field in fields if record.get(field) is not None), "")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
        return str(value)
    if not isinstance(value, str) or len(value) > MAX_WORD:
        raise RefusedEntryError("damaged field", " or ".join(fields))
    return "".join(check_texts(value))


def clean_text(text: str) -> str:
    """Return a stripped text; lone surrogates, which JSON can spell, are replaced."""
    return text.strip().encode("utf-8", "replace").decode("utf-8")


def choose_splits(address: str | Path, wanted: Sequence[str], there: Sequence[str]) -> list[str]:
    """Return the splits to read, in the source's own order; ``SourceError`` if a requested one is missing."""
    if unknown := ", ".join(map(repr, sorted(set(wanted) - set(there)))):
        known = ", ".join(map(shown_name, there)) or "none"
        raise SourceError(f"{address}: reading.splits has unknown {unknown}; choose from: {known}")
    return [name for name in there if not wanted or name in wanted]


def load_json(path: Path, kind: type[T]) -> T:
    """Return the content of a JSON file; ``SourceError`` if it is too large, invalid, or of another type."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SourceError(
                f"{path}: has {path.stat().st_size} bytes; at most {MAX_FILE_BYTES} are read: split it"
            )
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: is not JSON: {error}") from error
    if not isinstance(found, kind):
        wanted = "an object" if kind is dict else "a list"
        raise SourceError(f"{path}: must hold {wanted}, not {type(found).__name__}")
    return found


def load_lists(path: Path) -> dict[str, list[Any]]:
    """Return a JSON object of lists, such as splits and their members; ``SourceError`` for anything else."""
    found = load_json(path, dict)
    for name, values in found.items():
        if not isinstance(values, list):
            raise SourceError(
                f"{path}: {shown_name(name)} must be a list, not {type(values).__name__}"
            )
    return found


def read_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each non-blank line; ``None`` for one that is too long."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    yield number, None
                elif line.strip():
                    yield number, line
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error


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
