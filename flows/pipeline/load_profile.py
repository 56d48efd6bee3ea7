"""Read a profile (``flows/profiles/NAME.yaml`` or any other file), and apply the settings of the command line.

Recipes of a training (``flows/recipes``) are read in the same way.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import filled_by, section_within
from pairwright.schemas.training import RecipeConfig

S = TypeVar("S", bound=BaseModel)
FOLDER = Path(__file__).parents[1] / "profiles"
RECIPES = Path(__file__).parents[1] / "recipes"


def profile_names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the profiles, or of the recipes, that come with Pairwright."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_recipe(name: str) -> tuple[RecipeConfig, dict[str, Any]]:
    """Return the description of a recipe, by name or file, and its training settings."""
    path = _path_of(name, folder=RECIPES)
    values = _read(path, folder=RECIPES)
    own = {field: values.pop(field) for field in RecipeConfig.model_fields if field in values}
    return make_section(RecipeConfig, own, where=str(path)), values


def choose_objective(objective: str, recipe: str) -> str:
    """Return the objective: the given one, else the recipe's."""
    if not (
        found := objective or str(load_recipe(recipe)[1].get("objective", "") if recipe else "")
    ):
        raise ConfigError(
            "--objective is missing: choose from sft, dpo, mdpo, adavip, adpo, namc; or give a --recipe"
        )
    return found


def load_profile(name: str, settings: Sequence[str] = ()) -> Profile:
    """Return a profile by name or file, with ``a.b=value`` settings applied.

    Errors are ``ConfigError`` with the file, the field and the allowed values.
    """
    path = _path_of(name)
    values = _read(path)
    for setting in settings:
        set_field(values, setting)
    return make_section(Profile, {"name": path.stem, **values}, where=str(path), settings=settings)


def _path_of(name: str, where: str = "", *, folder: Path = FOLDER) -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        kind, known = folder.name.removesuffix("s"), ", ".join(profile_names(folder))
        raise ConfigError(f"{where}{name}: no such {kind}. There are {known}, or give a .yaml file")
    return path


def _read(path: Path, above: tuple[Path, ...] = (), *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the values of a file, over those of the profile that it ``extends``."""
    try:
        values = load_yaml(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of sections, not {type(values).__name__}")
    own = cast("dict[str, Any]", values)
    if (base := own.pop("extends", None)) is None:
        return own
    below = _path_of(str(base), f"{path}: extends: ", folder=folder)
    if below in (*above, path):
        raise ConfigError(
            f"{path}: extends: {base} extends this file in turn, a circle; remove one of the two"
        )
    return _put_over(_read(below, (*above, path), folder=folder), own)


class _Loader(yaml.SafeLoader):
    """Loader that refuses a field that is set twice, where YAML's own takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (PyYAML's)
        """Return a mapping with distinct fields."""
        seen = set[str]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"{key.value} is set twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text; ``yaml.YAMLError`` if a field is set twice, or it is nested too deep."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a safe one)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def _put_over(base: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with their fields replaced; null removes a field of the base."""
    for name, value in own.items():
        inner = base.get(name)
        base[name] = (
            _put_over(inner, value)
            if isinstance(inner, dict) and isinstance(value, dict)
            else value
        )
        if value is None:
            del base[name]
    return base


def change_profile(profile: Profile, settings: Sequence[str]) -> Profile:
    """Return a profile with ``a.b=value`` settings applied."""
    values = profile.model_dump(mode="json")
    for setting in settings:
        set_field(values, setting)
    return make_section(type(profile), values, where="--set", settings=settings)


def make_section(
    kind: type[S], values: Mapping[str, Any], *, where: str, settings: Sequence[str] = ()
) -> S:
    """Return the settings that a mapping describes."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        details = error.errors()
        longer = {one["loc"][:length] for one in details for length in range(len(one["loc"]))}
        inner = [
            one for one in details if one["loc"] not in longer
        ]  # an error of a whole section only follows
        raise ConfigError(
            "\n".join(_explain(kind, detail, where, settings) for detail in inner)
        ) from error


def set_field(values: dict[str, Any], setting: str) -> None:
    """Apply ``a.b=value`` to a mapping."""
    field, equals, text = setting.partition("=")
    if not equals or not field:
        raise ConfigError(f"--set {setting}: must look like section.field=value")
    *sections, last = field.strip().split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {setting}: {section} is a value, not a section")
        values = inner
    try:
        values[last] = (
            load_yaml(text) if text.strip() else ""
        )  # an empty value is "", not YAML's null
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {setting}: the value is not YAML: {error}") from error


def _explain(
    kind: type[BaseModel], detail: ErrorDetails, where: str, settings: Sequence[str]
) -> str:
    place = ".".join(str(part) for part in detail["loc"])
    names = {s.partition("=")[0].strip(): s for s in settings}
    near = [
        s
        for name, s in names.items()
        if f"{name}.".startswith(f"{place}.") or f"{place}.".startswith(f"{name}.")
    ]
    given = " ".join(f"--set {s}" for s in (near if place else names.values())) or where
    if detail["loc"] and detail["loc"][-1] == "key":  # the value may be a secret key
        return f"{place}: {detail['msg'].removeprefix('Value error, ')}"
    if detail["type"] == "extra_forbidden":
        fields = _fields(kind, detail["loc"][:-1])
        close = difflib.get_close_matches(str(detail["loc"][-1]), fields, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return f"{given}: {place}: no such field.{hint} Allowed here: {', '.join(fields)}"
    if detail["type"] in ("model_type", "dataclass_type"):
        return f"{given}: {place}: must be a section with fields: {', '.join(_fields(kind, detail['loc']))}"
    value = (
        "" if isinstance(detail["input"], dict | BaseModel) else f" (given: {detail['input']!r})"
    )
    return f"{given}: {f'{place}: ' if place else ''}{detail['msg'].removeprefix('Value error, ')}{value}"


def _fields(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    within: type[BaseModel] = model
    for part in path:
        if (field := within.model_fields.get(str(part))) is None:
            continue  # a name that the user chose: models.mine
        if (inner := section_within(field.annotation)) is None:
            return []
        within = inner
    return sorted(name for name, field in within.model_fields.items() if not filled_by(field))
