"""Read untrusted JSON and JSON Lines; errors name the file and the line, or the record.

Sizes, characters, numbers and depth are checked, and records are validated by pydantic models.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pairwright.schemas.errors import ConfigError

FILE_BYTES = 512 << 20
M = TypeVar("M", bound="ExternalRecord")


class ExternalRecord(BaseModel):
    """Record of an external file, with strict types; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


def read_text(path: Path) -> str:
    """Return a file's text."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise ConfigError(f"{path}: has {size:,} bytes; at most {FILE_BYTES:,} are read")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line}: is not UTF-8") from error


def parse_json(text: str, where: str) -> Any:
    """Return the value of a JSON text."""

    def refuse_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        return json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        line = f" line {error.lineno}" if "\n" in text.strip() else ""
        raise ConfigError(
            f"{where}{line}: invalid JSON: {error.msg} (column {error.colno})"
        ) from error
    except (ValueError, RecursionError) as error:  # such as too deep nesting
        raise ConfigError(f"{where}: invalid JSON: {error}") from error


def number_records(values: list[Any], where: str) -> Iterator[tuple[Any, str]]:
    """Yield values with their locations."""
    return ((value, f"{where} record {number}") for number, value in enumerate(values, start=1))


def parse_values(text: str, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the values of a file's text, JSON Lines or a JSON list, with their locations."""
    if text.lstrip()[:1] == "[":
        yield from number_records(parse_json(text, str(path)), str(path))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{path} line {number}"
            yield parse_json(line, where), where


def read_records(path: Path, kind: type[M]) -> list[tuple[M, str]]:
    """Return the records of a file, with their locations."""
    records: list[tuple[M, str]] = []
    for value, where in parse_values(read_text(path), path):
        records.append((validate_record(value, kind, where), where))
    if not records:
        raise ConfigError(f"{path}: has no records")
    return records


def validate_record(
    value: Any,
    kind: type[M],
    where: str,
) -> M:
    """Return a value as a record."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        location = f"{where}: {field}" if field else where
        raise ConfigError(f"{location}: {first['msg']}") from error
