"""Plugins: sources, stages, validators, models, export formats and more from outside, by name.

A package names each in an entry point (``[project.entry-points."pairwright.sources"]``); a file
(``--plugin FILE.py``, or in ``PAIRWRIGHT_PLUGINS``) lists them by group: ``SOURCES = [SWATCHES]``.
Only plugins that are named are loaded.
"""

import os
import sys
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Literal, TypeVar

from pydantic import ValidationError

from pairwright.schemas.errors import ConfigError, wrap_errors
from pairwright.schemas.section import Section
from pairwright.schemas.suggest import suggest

P = TypeVar("P")
Group = Literal[
    "sources",
    "stages",
    "validators",
    "formats",
    "embedders",
    "taggers",
    "detectors",
    "segmenters",
    "removers",
    "scorers",
    "nouns",
    "benchmarks",
]
SINGULAR = {"nouns": "finder of nouns"}
"""Names of one object of a group, where the group's name less its last letter is none."""
FILES = "PAIRWRIGHT_PLUGINS"
"""Environment variable: plugin files for every command, separated by colons as in ``PATH``."""
_FILES: dict[str, ModuleType] = {}
"""The plugin files that this process has loaded, by their paths."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Plugin: an object that a package or a file adds to a group under a name."""

    group: Group
    name: str
    origin: str
    """The package with its release ("pairwright-swatches==0.1"), or the path of the file."""
    get: Callable[[], Any]

    def __str__(self) -> str:
        return f"plugin {self.origin}, pairwright.{self.group} {self.name!r}"

    def load_object(self) -> Any:
        """Return the object."""

        def refuse(error: Exception) -> ConfigError:
            return ConfigError(f"{self}: cannot be loaded: {type(error).__name__}: {error}")

        with wrap_errors(refuse):
            return self.get()


class Registry(UserDict[str, P], Generic[P]):
    """Objects of one group by name: Pairwright's own, then plugins', loaded on first use."""

    def __init__(
        self,
        group: Group,
        kind: type[P],
        entries: Iterable[P] = (),
        *,
        reserved: Collection[str] = (),
    ) -> None:
        """Keep our own objects; ``reserved``: further names of ours, which plugins cannot take."""
        super().__init__({name_of(group, entry): entry for entry in entries})
        self.group: Group = group
        self.kind = kind
        self.reserved = reserved

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        """Return what plugins add to it."""
        return find_plugins(self.group, {*self.data, *self.reserved})

    def origin(self, name: str) -> str:
        """Return the origin of a plugin; empty: Pairwright's own, or unknown."""
        return self.plugins[name].origin if name not in self.data and name in self.plugins else ""

    def __missing__(self, name: str) -> P:
        plugin = self.plugins[name]
        entry = plugin.load_object()
        called = name_of(self.group, entry)
        if not isinstance(entry, self.kind) or called != name:
            kind = type(entry).__name__
            raise ConfigError(
                f"{plugin}: must be a {self.kind.__name__} of this name; "
                f"it is a {kind} named {called!r}"
            )
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        return iter([*self.data, *self.plugins])

    def __len__(self) -> int:
        return len(self.data) + len(self.plugins)


def name_of(group: Group, entry: object) -> str:
    """Return an object's name in its group; empty: it has none, so it is not of this group."""
    return str(getattr(entry, "kind" if group == "sources" else "name", ""))


def find_plugins(group: Group, reserved: Collection[str] = ()) -> dict[str, Plugin]:
    """Return the plugins of a group by name, without loading them; refuse ``reserved`` names."""
    _load_all(filter(None, os.environ.get(FILES, "").split(os.pathsep)))
    listed = (
        (file, entry)
        for file, module in _FILES.items()
        for entry in getattr(module, group.upper(), ())
    )
    loaded = (
        Plugin(group, name_of(group, entry), file, lambda entry=entry: entry)
        for file, entry in listed
    )
    plugins: dict[str, Plugin] = {}
    for plugin in (*_installed(group), *loaded):
        if plugin.name in reserved:
            raise ConfigError(
                f"{plugin}: Pairwright's own {group} use this name; rename or remove the plugin"
            )
        if plugin.name in plugins:
            raise ConfigError(
                f"{plugin}: {plugins[plugin.name].origin} uses the same name; remove one of them"
            )
        plugins[plugin.name] = plugin
    return plugins


@cache
def _installed(group: Group) -> tuple[Plugin, ...]:
    plugins: list[Plugin] = []
    for entry in entry_points(group=f"pairwright.{group}"):
        origin = f"{entry.dist.name}=={entry.dist.version}" if entry.dist else entry.value
        plugins.append(Plugin(group, entry.name, origin, entry.load))
    return tuple(plugins)


def load_plugin(file: str | Path) -> None:
    """Load a file with lists of plugins by group (``SOURCES``, ``STAGES``, ``TAGGERS``, ...)."""
    path = Path(file).resolve()
    if str(path) in _FILES:
        return
    if not path.is_file() or path.suffix != ".py":
        raise ConfigError(f"plugin {file}: no such Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))

    def refuse(error: Exception) -> ConfigError:
        return ConfigError(f"plugin {path}: cannot be imported: {type(error).__name__}: {error}")

    with wrap_errors(refuse):
        module = import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise ConfigError(f"plugin {path}: another module is called {path.stem}; rename the file")
    _FILES[str(path)] = module


class LoadedFiles:
    """Plugin files of this process; unpickled first, it loads them for what follows."""

    def __reduce__(self) -> tuple[Callable[[tuple[str, ...]], None], tuple[tuple[str, ...]]]:
        return _load_all, (tuple(_FILES),)


def _load_all(files: Iterable[str]) -> None:
    for file in files:
        load_plugin(file)


def require_plugins(origins: Mapping[str, str]) -> Mapping[str, str]:
    """Check that the plugins that a dataset was built with are loaded, by group and name.

    A file is never loaded because a dataset names it: a dataset from elsewhere must not run code
    here.
    """
    for place, origin in origins.items():
        group, _, name = place.partition(".")
        known: Any = group
        if name not in find_plugins(known):
            get = (
                f"add --plugin {origin}"
                if origin.endswith(".py")
                else f"python -m pip install {origin}"
            )
            raise ConfigError(
                f"the dataset was built with the plugin {origin} ({group} {name!r}), "
                f"not loaded now: {get}"
            )
    return origins


def check_plugin_name(group: Group, name: str, own: Collection[str] = ()) -> str:
    """Return a name after checking that Pairwright or a plugin defines it."""
    if name not in own and name not in (plugins := find_plugins(group, own)):
        names = [*own, *plugins]
        hint = suggest(name, names) if names else "choose from none: no plugin adds any"
        raise ValueError(f"no such {SINGULAR.get(group, group[:-1])} {name!r}; {hint}")
    return name


def read_settings(stages: object) -> object:
    """Return the settings of plugins' stages, each read by the stage's own model."""
    if not isinstance(stages, Mapping):
        return stages
    read: dict[str, Section] = {}
    for name, given in stages.items():
        kind = (
            type(given)
            if isinstance(given, Section)
            else settings_model(check_plugin_name("stages", str(name)))
        )
        try:
            read[str(name)] = kind.model_validate(given or {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join((str(name), *map(str, first["loc"])))
            raise ValueError(
                f"{place}: {first['msg']}. Its settings: {', '.join(kind.model_fields)}"
            ) from error
    return read


def settings_model(name: str) -> type[Section]:
    """Return the settings model of a plugin's stage; all of its fields have defaults."""
    plugin = find_plugins("stages")[name]
    kind = getattr(plugin.load_object(), "config", None)
    if not (isinstance(kind, type) and issubclass(kind, Section)):
        raise ConfigError(
            f"{plugin}: must be a Stage whose config is a subclass of Section, "
            "the model of its settings"
        )
    if needed := [name for name, field in kind.model_fields.items() if field.is_required()]:
        raise ConfigError(
            f"{plugin}: settings without a default: {', '.join(needed)}; give each one"
        )
    return kind
