"""A place of the line: the models of Pairwright that fill it, and plugins', made by name.

Ours are made from a section of the profile, and those with weights are pinned to this machine's
revision. A plugin is the model itself, without settings. Two attributes are optional:
``has_weights`` (true: one copy per GPU, in a process of its own), and ``check(download=...)``,
which finds the model's files, or fetches them, and raises ``ModelError`` where it cannot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pairwright.schemas.plugins import Group, Registry

C = TypeVar("C")
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class OwnModel(Generic[C, M]):
    """Model of Pairwright in one place."""

    make: Callable[[C], M]
    """Return the model of a section; loads nothing."""
    pin: Callable[[C], C] | None = None
    """Return the section with the revision of this machine's weights; ``None``: it has none."""
    on_device: bool = True
    """Whether its weights are on this machine, so that it gets a process per GPU."""


class ModelRegistry(Generic[C, M]):
    """Models of one place by name: ours, then plugins'."""

    def __init__(
        self,
        group: Group,
        kind: type[M],
        models: Mapping[str, OwnModel[C, M]],
        *,
        reserved: Iterable[str] = (),
    ) -> None:
        """Keep our models; ``reserved``: further names of ours that stand for no model."""
        self.models = models
        self.plugins = Registry(group, kind, reserved=(*models, *reserved))

    def make(self, name: str, config: C) -> M:
        """Return the model of that name; it loads its weights at the first use."""
        entry = self.models.get(name)
        return entry.make(config) if entry else self.plugins[name]

    def has_weights(self, name: str) -> bool:
        """Return whether a model loads weights, so that it gets a process per GPU."""
        if name in self.models:
            entry = self.models[name]
            return entry.pin is not None and entry.on_device
        plugin: Any = self.plugins[name]
        return bool(getattr(plugin, "has_weights", False))

    def pin(self, name: str, config: C, *, download: bool = False) -> C:
        """Return the section with the revision of this machine's weights, if the model has any."""
        entry = self.models.get(name)
        if entry:
            return entry.pin(config) if entry.pin else config
        plugin: Any = self.plugins[name]
        check = getattr(plugin, "check", None)
        if check:
            check(download=download)
        return config
