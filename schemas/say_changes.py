"""Say in words what settings were and are, from their plain form (``model_dump(mode="json")``)."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

Plain = Mapping[str, Any]
"""Sections within sections."""


def say_changes(before: Plain, after: Plain, *, free: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield in words each field that differs; those whose names begin with one of ``free`` may differ."""
    for name, old, new in find_changes(before, after):
        if not name.startswith(free):
            yield f"{name} was {old}, is {new}"


def find_changes(before: Plain, after: Plain) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted name of each field that differs, and its two values in words."""
    old, new = dict(_fields(before)), dict(_fields(after))
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield name, _shown(old.get(name)), _shown(new.get(name))


def _fields(section: Plain, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _fields(cast("Plain", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[Any]", value))) or "none"
    return "none" if value is None or value == "" else str(value)
