"""Read a profile (``flows/profiles/NAME.yaml``, or another file), and apply ``--set`` settings.

Recipes of a training (``flows/recipes``) are read in the same way.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import filled_by, section_within
from pairwright.schemas.suggest import MAX_HINTS, suggest
from pairwright.schemas.training import RecipeConfig

S = TypeVar("S", bound=BaseModel)
log = logging.getLogger(__name__)
FOLDER = Path(__file__).parents[1] / "profiles"
RECIPES = Path(__file__).parents[1] / "recipes"


def profile_names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the profiles, or of the recipes, that come with Pairwright."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_recipe(name: str) -> tuple[RecipeConfig, dict[str, Any]]:
    """Return the description of a recipe, by name or file, and its training settings."""
    path = _path_of(name, folder=RECIPES)
    values = _read(path, folder=RECIPES)
    description: dict[str, Any] = {}
    for field in RecipeConfig.model_fields:
        if field in values:
            description[field] = values.pop(field)
    return make_section(RecipeConfig, description, where=str(path)), values


def choose_objective(objective: str, recipe: str) -> str:
    """Return the objective: the given one, else the recipe's."""
    if not objective and recipe:
        _, settings = load_recipe(recipe)
        objective = str(settings.get("objective", ""))
    if not objective:
        raise ConfigError(
            "--objective is missing: choose from sft, dpo, mdpo, adavip, symmpo, adpo, grpo, namc; "
            "or give a --recipe"
        )
    return objective


def load_profile(name: str, settings: Sequence[str] = ()) -> Profile:
    """Return a profile by name or file, with ``a.b=value`` settings applied.

    Errors are ``ConfigError`` with the file, the field and the allowed values.
    """
    path = _path_of(name)
    values = _read(path)
    _say_repeated(settings)
    for setting in settings:
        set_field(values, setting)
    return make_section(Profile, {"name": path.stem, **values}, where=str(path), settings=settings)


def _say_repeated(settings: Sequence[str]) -> None:
    """Warn of a field that is set twice, to different values: the last one counts."""
    values: dict[str, str] = {}
    for setting in settings:
        field, _, value = setting.partition("=")
        name = field.strip()
        if values.get(name, value) != value:
            log.warning("--set %s is given twice: %s counts, not %s", name, value, values[name])
        values[name] = value


def _path_of(name: str, where: str = "", *, folder: Path = FOLDER) -> Path:
    is_file_name = name.endswith((".yaml", ".yml"))
    path = Path(name) if is_file_name else folder / f"{name}.yaml"
    if not path.is_file():
        kind = folder.name.removesuffix("s")
        hint = suggest(name, profile_names(folder))
        raise ConfigError(f"{where}{name}: no such {kind}, and no .yaml file; {hint}")
    return path


def _read(path: Path, above: tuple[Path, ...] = (), *, folder: Path = FOLDER) -> dict[str, Any]:
    """Return the values of a file, over those of the profile that it ``extends``."""
    try:
        values = load_yaml(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of sections, not {type(values).__name__}")
    sections = cast("dict[str, Any]", values)
    base = sections.pop("extends", None)
    if base is None:
        return sections
    base_path = _path_of(str(base), f"{path}: extends: ", folder=folder)
    if base_path in (*above, path):
        raise ConfigError(
            f"{path}: extends: {base} extends this file in turn, a circle; remove one of the two"
        )
    return _put_over(_read(base_path, (*above, path), folder=folder), sections)


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
    """Return the value of a YAML text; ``yaml.YAMLError`` for duplicate fields or deep nesting."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a safe one)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def _put_over(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with their fields replaced; null removes a field of the base."""
    for name, value in changes.items():
        inner = base.get(name)
        if value is None:
            base.pop(name, None)
        elif isinstance(inner, dict) and isinstance(value, dict):
            base[name] = _put_over(cast("dict[str, Any]", inner), cast("dict[str, Any]", value))
        else:
            base[name] = value
    return base


def change_profile(profile: Profile, settings: Sequence[str]) -> Profile:
    """Return a profile with ``a.b=value`` settings applied."""
    values = profile.model_dump(mode="json")
    for setting in settings:
        set_field(values, setting)
    return make_section(type(profile), values, where="--set", settings=settings)


def make_section(
    kind: type[S],
    values: Mapping[str, Any],
    *,
    where: str,
    settings: Sequence[str] = (),
    options: Mapping[str, str] = {},
) -> S:
    """Return the settings that a mapping describes.

    Errors quote ``settings`` (``a.b=value``) and ``options`` (the text of an option, by its field).
    """
    given = {setting.partition("=")[0].strip(): f"--set {setting}" for setting in settings}
    given |= options
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        details = error.errors()
        outer: set[tuple[int | str, ...]] = (
            set()
        )  # sections: their errors only follow from inner ones
        for detail in details:
            outer.update(detail["loc"][:length] for length in range(len(detail["loc"])))
        inner = [detail for detail in details if detail["loc"] not in outer]
        messages = (_explain(kind, detail, where, given) for detail in inner)
        raise ConfigError("\n".join(messages)) from error


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
        # an empty value is "", not YAML's null
        values[last] = load_yaml(text) if text.strip() else ""
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {setting}: the value is not YAML: {error}") from error


def _explain(
    kind: type[BaseModel], detail: ErrorDetails, where: str, options: Mapping[str, str]
) -> str:
    """Return one of pydantic's errors as a message: file or ``--set``, field, what is wrong."""
    location, message = detail["loc"], detail["msg"].removeprefix("Value error, ")
    name = ".".join(str(part) for part in location)
    if location and location[-1] == "key":  # the value may be a secret key
        return f"{name}: {message}"
    origin = " ".join(_options_of(name, options)) or where
    if detail["type"] == "extra_forbidden":
        fields = _fields(kind, location[:-1])
        unknown = str(location[-1])
        places = _find_field(kind, unknown) if len(location) == 1 else []
        if places:
            return f"{origin}: {name}: no such field; did you mean {' or '.join(places)}?"
        return f"{origin}: {name}: no such field; {suggest(unknown, fields)}"
    if detail["type"] in ("model_type", "dataclass_type"):
        fields = ", ".join(_fields(kind, location))
        return f"{origin}: {name}: must be a section with fields: {fields}"
    if not isinstance(detail["input"], dict | BaseModel):
        message += f" (given: {detail['input']!r})"
    return f"{origin}: {name}: {message}" if name else f"{origin}: {message}"


def _options_of(name: str, options: Mapping[str, str]) -> list[str]:
    """Return the options that set a field, a section around it, or a field in it."""
    if not name:
        return list(options.values())
    near: list[str] = []
    for set_name, text in options.items():
        is_inside = f"{set_name}.".startswith(f"{name}.")
        is_around = f"{name}.".startswith(f"{set_name}.")
        if is_inside or is_around:
            near.append(text)
    return near


def _find_field(model: type[BaseModel], name: str) -> list[str]:
    """Return the first settings of this name in the sections of a model, with their sections."""
    places: list[str] = []
    for section_name, field in model.model_fields.items():
        section = section_within(field.annotation)
        if section is None or filled_by(field):
            continue
        if name in _fields(section, ()):
            places.append(f"{section_name}.{name}")
        places += [f"{section_name}.{place}" for place in _find_field(section, name)]
    return places[:MAX_HINTS]


def _fields(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the settings of the section at a path; none if a value is there."""
    for part in path:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # a name that the user chose: models.mine
        inner = section_within(field.annotation)
        if inner is None:
            return []
        model = inner
    return sorted(name for name, field in model.model_fields.items() if not filled_by(field))
