"""Base of the sections of a profile, types of their fields, comparison of two profiles."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

Plain = Mapping[str, Any]
"""Sections within sections."""


def say_changes(before: Plain, after: Plain, *, free: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each difference in words, except in fields whose name begins with one of ``free``."""
    for name, old, new in find_changes(before, after):
        if not name.startswith(free):
            yield f"{name} was {old}, is {new}"


def find_changes(before: Plain, after: Plain) -> Iterator[tuple[str, str, str]]:
    """Yield the dotted name of each field that differs, and its two values in words."""

    def shown(value: Any) -> str:
        if isinstance(value, list):
            return ", ".join(map(str, cast("list[Any]", value))) or "none"
        return "none" if value is None or value == "" else str(value)

    old, new = dict(_fields(before)), dict(_fields(after))
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            yield name, shown(old.get(name)), shown(new.get(name))


def _fields(section: Plain, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _fields(cast("Plain", value), f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


S = TypeVar("S", bound="Section")
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda value: (value,) if isinstance(value, str) else () if value is None else value
    ),
]
"""Several names, one or none: `train`, `[train, val]`."""
UNSET = Field(exclude_if=lambda value: not value)
"""Field that is left out of the file until it is filled in."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Marker of a field that is not a setting: it is filled in when a stage gets the section.

    ``clip: Annotated[ClipConfig | None, UNSET, Filled("embedding.clip")] = None``
    """

    origin: str
    """Source of the value, for the message to a user who sets the field."""


FOUND = Filled("what a build finds")
"""Marker of a field whose value a build finds out before it begins."""
FilledSeed = Annotated[Seed, UNSET, Filled("seed")]
"""The profile's one seed."""


class Section(BaseModel):
    """One section of a profile: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    uncounted: ClassVar[frozenset[str]] = frozenset()
    """Fields left out of fingerprints: they change no row, or the stage's ``models`` covers what
    counts of them."""

    @model_validator(mode="after")
    def _ranges_are_not_empty(self) -> Self:
        for name, low in self:
            high = (
                getattr(self, name.replace("min_", "max_", 1), None)
                if name.startswith("min_")
                else None
            )
            if isinstance(low, float) and isinstance(high, float) and low > high:
                raise ValueError(
                    f"{name} {low} is above {name.replace('min_', 'max_', 1)} {high}: "
                    "lower one of them"
                )
        return self

    def fill(self, **values: Any) -> Self:
        """Return the section with some of its ``Filled`` fields filled."""
        for name in values:
            if not filled_by(type(self).model_fields[name]):
                raise ValueError(f"{type(self).__name__}.{name} is a setting: it cannot be filled")
        return self.model_copy(update=values)


def filled_by(field: FieldInfo) -> Filled | None:
    """Return the marker of a ``Filled`` field; ``None``: it is a setting."""
    return next((marker for marker in field.metadata if isinstance(marker, Filled)), None)


def filled_by_hand(
    kind: type[BaseModel], values: object, place: str = ""
) -> Iterator[tuple[str, Filled]]:
    """Yield the dotted names of ``Filled`` fields that a mapping sets, with their markers."""
    given: Mapping[Any, Any] = values if isinstance(values, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]
    for name, field in kind.model_fields.items():
        if name not in given:
            continue
        if marker := filled_by(field):
            yield f"{place}{name}", marker
        elif isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from filled_by_hand(field.annotation, given[name], f"{place}{name}.")


def with_field(section: S, path: Sequence[str], value: object) -> S:
    """Return a section with the field at a path replaced, without validation."""
    name, *rest = path
    own: Any = getattr(section, name)
    if not rest:
        return section.model_copy(update={name: value})
    if isinstance(own, Mapping):  # several by name; one that is missing has the defaults
        key, *rest = rest
        kind = section_within(type(section).model_fields[name].annotation)
        one = own.get(key) or (kind() if kind else None)
        value = {**own, key: with_field(one, rest, value) if isinstance(one, Section) else value}
    else:
        value = with_field(own, rest, value)
    return section.model_copy(update={name: value})


def changed_fields(before: Section, after: Section, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and new values of fields that differ between two states of a section.

    ``name`` is the section's own. A section that it was filled with has the name of its origin.
    """
    old_values = dict(_fields(before.model_dump()))
    fields = type(before).model_fields
    for field, value in _fields(after.model_dump()):
        if value == old_values.get(field):
            continue
        part, _, inner = field.partition(".")
        marker = filled_by(fields[part])
        yield (f"{marker.origin}.{inner}" if marker and inner else f"{name}.{field}"), value


def section_within(annotation: Any) -> type[Section] | None:
    """Return the section type of a field, optional or a mapping, too; ``None``: a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_within, get_args(annotation))), None)
