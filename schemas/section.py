"""Base of the sections of a profile: their form, the types of their fields, comparison of two
profiles.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

Plain = Mapping[str, Any]
"""Sections within sections."""


def say_changes(before: Plain, after: Plain, *, free: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield each difference in words, except for fields with a name that begins with one of ``free``."""
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


C = TypeVar("C", bound="Section")
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
    """Marker of a field that is not a setting: the profile fills it in when a stage gets the section.

    ``clip: Annotated[ClipConfig | None, UNSET, Filled("embedding.clip")] = None``
    """

    source: str
    """Dotted name of the profile's field (``{self.model}``: the section's own); empty: a build
    finds the value."""
    when: str = ""
    """Property of the section that must be true for it to be filled."""

    @property
    def origin(self) -> str:
        """Return the source in words."""
        return self.source.replace("served.{self.asks}", "models.NAME") or "what a build finds"


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
                    f"{name} {low} is above {name.replace('min_', 'max_', 1)} {high}: lower one of them"
                )
        return self

    def filled(self, profile: BaseModel) -> Self:
        """Return the section with its ``Filled`` fields, and those of inner sections, filled from the profile."""
        update: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            own, marker = getattr(self, name), filled_by(field)
            if marker is None and isinstance(own, Section):
                update[name] = own.filled(profile)
            elif (
                marker is not None
                and marker.source
                and (not marker.when or getattr(self, marker.when))
            ):
                update[name] = read_filled(profile, marker.source.format(self=self))
        return self.model_copy(update=update)


def compose(kind: type[C], profile: BaseModel) -> C:
    """Return a section composed from others: all of its fields are ``Filled``."""
    markers = {
        name: marker for name, field in kind.model_fields.items() if (marker := filled_by(field))
    }
    return kind.model_validate(
        {name: read_filled(profile, marker.source) for name, marker in markers.items()}
    )


def filled_by(field: FieldInfo) -> Filled | None:
    """Return the marker of a ``Filled`` field; ``None``: it is a setting."""
    return next((one for one in field.metadata if isinstance(one, Filled)), None)


def read_filled(profile: BaseModel, source: str) -> Any:
    """Return the value at a dotted name of a profile; a section has its own fields filled."""
    found: Any = profile
    for part in source.split("."):
        found = found[part] if isinstance(found, Mapping) else getattr(found, part)
    return found.filled(profile) if isinstance(found, Section) else found


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
    if isinstance(own, Mapping):  # several by name; one that is missing has the defaults
        key, *rest = rest
        kind = section_within(type(section).model_fields[name].annotation)
        one = own.get(key) or (kind() if kind else None)
        value = {**own, key: with_field(one, rest, value) if isinstance(one, Section) else value}
    elif rest:
        value = with_field(own, rest, value)
    return section.model_copy(update={name: value})


def changed_fields(before: Section, after: Section, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and new values of fields that differ between two states of a section.

    A filled field has the name of its source.
    """
    old = dict(_fields(before.model_dump()))
    origins = {
        name: marker
        for name, field in type(before).model_fields.items()
        if (marker := filled_by(field))
    }
    for name, new in _fields(after.model_dump()):
        if new != old.get(name):
            own, _, rest = name.partition(".")
            yield (
                (f"{origins[own].source}.{rest}" if own in origins and rest else f"{place}.{name}"),
                new,
            )


def section_within(annotation: Any) -> type[Section] | None:
    """Return the section type of a field, also if it is optional or a mapping; ``None``: the field holds a value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_within, get_args(annotation))), None)
