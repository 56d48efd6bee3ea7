"""Read captions with their ids: JSON Lines, a JSON list, or COCO's results and annotations.

A record has an id (``image_id``, ``img_id`` or ``id``: a text or a whole number, and 7 is "7") and a text (``text`` or
``caption``) or several (``sentences``, ``captions`` or ``texts``). Files are hostile: sizes, kinds and characters are
checked, and an error names the file and the line, or the record where a file has no lines. Reads local files.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.evaluation.read_json import number_records, parse_json, read_text

TEXT_CHARACTERS = 100_000
"""Of one record, all its texts together."""
ID_CHARACTERS = 1000
IDS = ("image_id", "img_id", "id")
ONE, SEVERAL = ("text", "caption"), ("sentences", "captions", "texts")


@dataclass(frozen=True)
class Record:
    """Texts that belong to one item.

    Attributes:
        name: the item's id.
        texts: as they were written; some may be blank.
        is_list: whether they were given as a list.
        where: file and line, for errors.
    """

    name: str
    texts: tuple[str, ...]
    is_list: bool
    where: str


def read_captions(path: Path) -> list[Record]:
    """Return the records of a file, in its order.

    Raises:
        ConfigError: the file cannot be read, is too large, is neither form, has no record, or has a wrong one.
    """
    records = [_record(value, where) for value, where in _values(read_text(path), path)]
    if not records:
        raise ConfigError(f"{path}: has no captions")
    return records


def _values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield each record's JSON and where it is."""
    if text.lstrip()[:1] == "[":
        yield from number_records(parse_json(text, str(path)), str(path))
        return
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    whole = _whole(text, lines)
    if whole is not None:
        yield from number_records(whole, f"{path}: annotations")
        return
    for number, line in lines:
        yield parse_json(line, f"{path} line {number}"), f"{path} line {number}"


def _whole(text: str, lines: list[tuple[int, str]]) -> list[Any] | None:
    """Return COCO's annotations, where the file is one object that has them; else it has one record per line."""
    if not lines or (len(lines) > 1 and _is_object(lines[0][1])):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    annotations = found.get("annotations") if isinstance(found, dict) else None
    return annotations if isinstance(annotations, list) else None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _record(value: Any, where: str) -> Record:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be an object with an id and a text, not a {type(value).__name__}")
    texts, is_list = _texts(value, where)
    if sum(map(len, texts)) > TEXT_CHARACTERS:
        raise ConfigError(f"{where}: has more than {TEXT_CHARACTERS:,} characters of text")
    for text in texts:
        _check_characters(text, where)
    return Record(_name(value, where), texts, is_list, where)


def _name(value: dict[str, Any], where: str) -> str:
    key = next((key for key in IDS if key in value), None)
    if key is None:
        raise ConfigError(f"{where}: has no id; it may be called {', '.join(IDS)}")
    name = value[key]
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise ConfigError(f"{where}: {key} must be a text or a whole number")
    try:
        name = str(name)
    except ValueError as error:  # a number of more digits than Python writes
        raise ConfigError(f"{where}: {key} is too long") from error
    if len(name) > ID_CHARACTERS:
        raise ConfigError(f"{where}: {key} has more than {ID_CHARACTERS:,} characters")
    _check_characters(name, where)
    return name


def _texts(value: dict[str, Any], where: str) -> tuple[tuple[str, ...], bool]:
    keys = [key for key in (*ONE, *SEVERAL) if key in value]
    if len(keys) != 1:
        found = f"has {' and '.join(keys)}" if keys else "has no text"
        raise ConfigError(f"{where}: {found}; exactly one of {', '.join((*ONE, *SEVERAL))} is needed")
    texts = value[keys[0]]
    if keys[0] in ONE and isinstance(texts, str):
        return (texts,), False
    if keys[0] in SEVERAL and isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return tuple(texts), True
    kind = "a text" if keys[0] in ONE else "a list of texts"
    raise ConfigError(f"{where}: {keys[0]} must be {kind}")


def _check_characters(text: str, where: str) -> None:
    if "\0" in text:
        raise ConfigError(f"{where}: holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: holds half a character (a lone surrogate), which is no Unicode text") from error
