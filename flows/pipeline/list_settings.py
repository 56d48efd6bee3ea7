"""List every setting of a build and of a training run, with its type, range, default and meaning.

Reads the pydantic models themselves, so that no setting is missing; the verbs ``settings`` and
``profiles`` print it, with a profile's values.
"""

import ast
import difflib
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from textwrap import dedent
from typing import Annotated, Any, Literal, cast

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from pairwright.flows.pipeline.load_profile import FOLDER, load_profile, profile_names
from pairwright.schemas.config import STANDARD_MODELS, Profile, SourceRule
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.plugins import find_plugins, settings_model
from pairwright.schemas.section import Section, filled_by, section_within
from pairwright.schemas.training import TrainConfig

Command = Literal["build", "train"]
TRAIN = "train"  # section of all settings of `pairwright train`
WORDS = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "null": "nothing",
}
BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
NO_BOUND = 2**32  # maximum of seeds, which the list leaves out
MAX_HINTS = 3  # suggestions for an unknown name


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the list."""

    command: Command  # command with the `--set` for it
    name: str
    type: str
    range: str  # allowed values, in words; empty: all of the type
    default: Any  # ``None``: there is none, it must be given
    meaning: str
    value: Any  # value of the profile; for `train`, the default


def list_settings(section: str = "", *, profile: str = "scenes") -> list[Setting]:
    """Return the settings of a section (``mining``, ``train.optimiser``), one by name, or all."""
    settings = _settings_by_name(section, load_profile(profile))
    chosen: list[Setting] = []
    for name, setting in settings.items():
        if not section or f"{name}.".startswith(f"{section}."):
            chosen.append(setting)
    if not chosen:
        hint = _suggest_names(section, settings)
        raise ConfigError(f"{section}: no such section or setting; {hint}")
    return chosen


def _settings_by_name(section: str, profile: Profile) -> dict[str, Setting]:
    """Return all settings; of the standard models, ``chat`` and the one that the section names.

    Rules of sources are those of the profile's own source, and those that it states.
    """
    described = ["chat"]
    first, _, rest = section.partition(".")
    model_name = rest.partition(".")[0]
    if first == "models" and model_name in STANDARD_MODELS:
        described.append(model_name)
    models = {name: profile.chat_models[name] for name in described} | profile.models
    stages = {name: settings_model(name)() for name in find_plugins("stages")} | profile.stages
    rules = {profile.source_kind: SourceRule()} | profile.per_source
    complete = profile.model_copy(update={"models": models, "stages": stages, "per_source": rules})
    settings = {setting.name: setting for setting in _walk("build", Profile, complete)}
    for setting in _walk("train", TrainConfig, None):
        settings[f"{TRAIN}.{setting.name}"] = setting
    return settings


def _suggest_names(section: str, settings: Mapping[str, Setting]) -> str:
    """Return a hint for an unknown name: similar ones, or the sections."""
    names: dict[str, None] = {}  # ordered
    for setting_name in settings:
        names |= dict.fromkeys(accumulate(setting_name.split("."), "{}.{}".format))
    similar = difflib.get_close_matches(section, names, n=MAX_HINTS)
    if not similar:
        last_part = section.rpartition(".")[2]
        similar = [name for name in names if name.rpartition(".")[2] == last_part][:MAX_HINTS]
    if similar:
        return f"did you mean {', '.join(similar)}?"
    sections: dict[str, None] = {}
    for setting in settings.values():
        first, dot, _ = setting.name.partition(".")
        if setting.command == "build" and dot:
            sections[first] = None
    return f"choose from {', '.join(sections)}, {TRAIN}"


def list_profiles() -> list[dict[str, str]]:
    """Return name, description and file of each profile that comes with Pairwright."""
    profiles: list[dict[str, str]] = []
    for name in profile_names():
        description = load_profile(name).about
        profiles.append({"name": name, "about": description, "path": str(FOLDER / f"{name}.yaml")})
    return profiles


def _walk(
    command: Command, kind: type[Section], section: Section | None, prefix: str = ""
) -> Iterator[Setting]:
    """Yield the settings of a section and of those inside it; ``None``: with their defaults."""
    for field_name, field in kind.model_fields.items():
        if filled_by(field):
            continue
        name = f"{prefix}{field_name}"
        if section is None:
            value = field.get_default(call_default_factory=True)
        else:
            value = getattr(section, field_name)
        inner_kind = section_within(field.annotation)
        if inner_kind is None:
            meaning = meanings_of(kind)[field_name]
            yield _describe_field(field, command=command, name=name, meaning=meaning, value=value)
        elif isinstance(value, Mapping):
            for key, inner in cast("Mapping[str, Section]", value).items():
                yield from _walk(command, type(inner), inner, f"{name}.{key}.")
        else:
            inner = value if isinstance(value, Section) else None
            yield from _walk(command, inner_kind, inner, f"{name}.")


def _describe_field(
    field: FieldInfo, *, command: Command, name: str, meaning: str, value: Any
) -> Setting:
    annotation: Any = field.annotation
    for metadata in field.metadata:
        annotation = Annotated[annotation, metadata]
    schema = TypeAdapter[Any](annotation).json_schema()
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return Setting(
        command=command,
        name=name,
        type=_say_type(schema),
        range=_say_range(schema),
        default=to_jsonable_python(default),
        meaning=meaning,
        value=None if value is PydanticUndefined else to_jsonable_python(value),
    )


@cache
def meanings_of(kind: type[Section]) -> dict[str, str]:
    """Return the docstring of each field of a section, which pydantic would read at every start."""
    meanings: dict[str, str] = {}
    sections = [base for base in kind.__mro__ if issubclass(base, Section)]
    for section in reversed(sections):
        tree = ast.parse(dedent(inspect.getsource(section))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for statements in pairwise(tree.body):
            match statements:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    meanings[name] = " ".join(text.split())
                case _:
                    pass
    return meanings


def _say_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return "one of " + ", ".join(str(value) or "''" for value in values)
    if "anyOf" in schema:
        return " or ".join(_say_type(inner) for inner in schema["anyOf"])
    if "prefixItems" in schema:
        return f"list of {_say_type(schema['prefixItems'][0])}"
    if schema.get("type") == "array":
        return f"list of {_say_type(schema['items'])}"
    if schema.get("type") == "object":
        return f"NAME: {_say_type(schema['additionalProperties'])}"
    return WORDS[schema["type"]]


def _say_range(schema: Mapping[str, Any]) -> str:
    if alternatives := schema.get("anyOf"):
        return next(filter(None, map(_say_range, alternatives)), "")
    parts = [_say_bounds(schema), _say_length(schema)]
    if isinstance(inner := _items_of(schema), Mapping):
        inner_range = _say_range(cast("Mapping[str, Any]", inner))
        parts.append(f"each {inner_range}" if inner_range else "")
    return "; ".join(filter(None, parts))


def _say_bounds(schema: Mapping[str, Any]) -> str:
    has_minimum = "minimum" in schema and "exclusiveMinimum" not in schema
    if has_minimum and "maximum" in schema:
        return f"{schema['minimum']:g} to {schema['maximum']:g}"
    bounds: list[str] = []
    for name, words in BOUNDS.items():
        if name == "minimum" and not has_minimum:
            continue
        if schema.get(name, NO_BOUND) < NO_BOUND:
            bounds.append(f"{words} {schema[name]:.15g}")
    return ", ".join(bounds)


def _say_length(schema: Mapping[str, Any]) -> str:
    low = schema.get("minItems", schema.get("minLength"))
    high = schema.get("maxItems", schema.get("maxLength"))
    if low is not None and high is not None:
        return f"{low} of them" if low == high else f"{low} to {high} of them"
    return "not empty" if low else ""


def _items_of(schema: Mapping[str, Any]) -> Any:
    """Return the schema of the items of a list, or of the values of a mapping."""
    inner = schema.get("items") or schema.get("additionalProperties")
    return inner or next(iter(schema.get("prefixItems", ())), None)


def as_typed(value: Any) -> str:
    """Return a value as a user types it."""
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_typed, cast('Iterable[Any]', value)))}]"
    return "(none)" if value is None else json.dumps(value)
