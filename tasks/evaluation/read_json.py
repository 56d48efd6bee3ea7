"""Read JSON and JSON Lines that others wrote; an error names the file and the line, or the record.

Files are hostile: sizes, characters, numbers and depth are checked, and records have to be of the form that a model of
pydantic says. Reads local files.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pairwright.schemas.errors import ConfigError

FILE_BYTES = 512 << 20
M = TypeVar("M", bound="Given")


class Given(BaseModel):
    """Record of somebody else's file: kinds are checked strictly, what is not known is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


def read_text(path: Path) -> str:
    """Return a file's text."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise ConfigError(f"{path}: has {path.stat().st_size:,} bytes; at most {FILE_BYTES:,} are read")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line}: is not UTF-8") from error


def parse_json(text: str, where: str) -> Any:
    """Return what a JSON text says."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        place = f" line {error.lineno}" if "\n" in text.strip() else ""
        raise ConfigError(f"{where}{place}: is no JSON: {error.msg} (column {error.colno})") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: is no JSON that can be read: nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"{where}: is no JSON: {error}") from error


def number_records(values: list[Any], where: str) -> Iterator[tuple[Any, str]]:
    """Yield values with where they are."""
    return ((value, f"{where} record {number}") for number, value in enumerate(values, start=1))


def read_values(path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the values of JSON Lines, or of a JSON list, with where each is."""
    return parse_values(read_text(path), path)


def parse_values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the values of a file's text, with where each is."""
    if text.lstrip()[:1] == "[":
        yield from number_records(parse_json(text, str(path)), str(path))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield parse_json(line, f"{path} line {number}"), f"{path} line {number}"


def read_records(path: Path, kind: type[M]) -> list[tuple[M, str]]:
    """Return the records of a file, each with where it is."""
    records = [(check_record(value, kind, where), where) for value, where in read_values(path)]
    if not records:
        raise ConfigError(f"{path}: holds no record")
    return records


def check_record(value: Any, kind: type[M], where: str) -> M:
    """Return a value as a record."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {f'{field}: ' if field else ''}{first['msg']}") from error
