"""List every setting of a build and of a training run: type, range, default, meaning, and a profile's value.

Reads the pydantic models themselves, so that no setting is missing; the verbs ``settings`` and
``profiles`` print it.
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
from pydantic_core import PydanticUndefined, to_jsonable_python

from pairwright.flows.pipeline.load_profile import FOLDER, load_profile, profile_names
from pairwright.schemas.config import STANDARD_MODELS, Profile
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
    """Return the settings of a section (``mining``, ``train.optimiser``), one setting by name, or all."""
    own = load_profile(profile)
    place, _, rest = section.partition(".")
    name = rest.partition(".")[0] if place == "models" else ""
    asked = (
        "chat",
        *({name} & set(STANDARD_MODELS)),
    )  # a standard model is described if it is the section
    models = {**{one: own.served[one] for one in asked}, **own.models}
    stages = {**{one: settings_model(one)() for one in find_plugins("stages")}, **own.stages}
    build = list(
        _walk("build", Profile, own.model_copy(update={"models": models, "stages": stages}))
    )
    train = list(_walk("train", TrainConfig, None))
    named = {one.name: one for one in build} | {f"{TRAIN}.{one.name}": one for one in train}
    found = [
        one for name, one in named.items() if f"{name}.".startswith(f"{section}.") or not section
    ]
    if not found:
        sections = dict.fromkeys(one.name.partition(".")[0] for one in build if "." in one.name)
        known = dict.fromkeys(
            part for name in named for part in accumulate(name.split("."), "{}.{}".format)
        )
        last = [name for name in known if name.rpartition(".")[2] == section.rpartition(".")[2]][:3]
        near = ", ".join(difflib.get_close_matches(section, known, n=3) or last)
        hint = f"did you mean {near}?" if near else f"choose from {', '.join(sections)}, {TRAIN}"
        raise ConfigError(f"{section}: no such section or setting; {hint}")
    return found


def list_profiles() -> list[dict[str, str]]:
    """Return name, description and file of each profile that comes with Pairwright."""
    paths = {name: str(FOLDER / f"{name}.yaml") for name in profile_names()}
    return [
        {"name": name, "about": load_profile(name).about, "path": path}
        for name, path in paths.items()
    ]


def _walk(
    command: Command, kind: type[Section], own: Section | None, place: str = ""
) -> Iterator[Setting]:
    for name, field in kind.model_fields.items():
        value = field.get_default(call_default_factory=True) if own is None else getattr(own, name)
        if filled_by(field):
            continue
        inner = section_within(field.annotation)
        if inner and isinstance(value, Mapping):
            for key, one in value.items():
                yield from _walk(command, type(one), one, f"{place}{name}.{key}.")
            continue
        if inner:
            yield from _walk(
                command, inner, value if isinstance(value, Section) else None, f"{place}{name}."
            )
            continue
        kind_of: Any = field.annotation
        for one in field.metadata:
            kind_of = Annotated[kind_of, one]
        about = TypeAdapter[Any](kind_of).json_schema()
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        yield Setting(
            command=command,
            name=f"{place}{name}",
            type=_say_type(about),
            range=_say_range(about),
            default=to_jsonable_python(default),
            meaning=meanings_of(kind)[name],
            value=None if value is PydanticUndefined else to_jsonable_python(value),
        )


@cache
def meanings_of(kind: type[Section]) -> dict[str, str]:
    """Return the docstring of each field of a section, which pydantic would read at every start."""
    found: dict[str, str] = {}
    for one in reversed([one for one in kind.__mro__ if issubclass(one, Section)]):
        tree = ast.parse(dedent(inspect.getsource(one))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for pair in pairwise(tree.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    found[name] = " ".join(text.split())
                case _:
                    pass
    return found


def _say_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema or "const" in schema:
        return "one of " + ", ".join(
            str(value) or "''" for value in schema.get("enum", [schema.get("const")])
        )
    if "anyOf" in schema:
        return " or ".join(_say_type(one) for one in schema["anyOf"])
    if "prefixItems" in schema:
        return f"list of {_say_type(schema['prefixItems'][0])}"
    if schema.get("type") == "array":
        return f"list of {_say_type(schema['items'])}"
    if schema.get("type") == "object":
        return f"NAME: {_say_type(schema['additionalProperties'])}"
    return WORDS[schema["type"]]


def _say_range(schema: Mapping[str, Any]) -> str:
    if inner := schema.get("anyOf"):
        return next(filter(None, map(_say_range, inner)), "")
    if "exclusiveMinimum" in schema:
        schema = {name: value for name, value in schema.items() if name != "minimum"}
    if "minimum" in schema and "maximum" in schema:
        bounds = f"{schema['minimum']:g} to {schema['maximum']:g}"
    else:
        known = {
            name: words for name, words in BOUNDS.items() if schema.get(name, NO_BOUND) < NO_BOUND
        }
        bounds = ", ".join(f"{words} {schema[name]:.15g}" for name, words in known.items())
    low, high = (schema.get(f"{end}Items", schema.get(f"{end}Length")) for end in ("min", "max"))
    length = "not empty" if low else ""
    if low is not None and high is not None:
        length = f"{low} of them" if low == high else f"{low} to {high} of them"
    inner = (
        schema.get("items")
        or schema.get("additionalProperties")
        or next(iter(schema.get("prefixItems", ())), None)
    )
    of_each = f"each {said}" if isinstance(inner, Mapping) and (said := _say_range(inner)) else ""
    return "; ".join(filter(None, (bounds, length, of_each)))


def as_typed(value: Any) -> str:
    """Return a value as a user types it."""
    if isinstance(value, str):
        return value or "''"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_typed, cast('Iterable[Any]', value)))}]"
    return "(none)" if value is None else json.dumps(value)
