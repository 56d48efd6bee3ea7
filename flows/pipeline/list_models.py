"""List the models that a profile can name, by place: ours, and plugins'."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.model_names import MODEL_PLACES, ModelPlace
from pairwright.schemas.plugins import find_plugins
from pairwright.schemas.suggest import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One row of the list."""

    group: str
    name: str
    description: str
    weights: str
    """Usual weights; empty: none."""
    licence: str
    """Licence of the usual weights."""
    setting: str
    """Setting that names the model."""
    plugin: str
    """Package or file of a plugin; empty: ours."""


def list_models(group: str = "") -> list[ListedModel]:
    """Return the models of one place, or of all."""
    if group and group not in MODEL_PLACES:
        raise ConfigError(f"{group}: no such place; {suggest(group, [*MODEL_PLACES])}")
    listed: list[ListedModel] = []
    for name, place in MODEL_PLACES.items():
        if group in ("", name):
            listed.extend(_list_place(place))
    return listed


def _list_place(place: ModelPlace) -> Iterator[ListedModel]:
    """Yield our models of a place, then plugins'."""
    for model in place.models:
        yield ListedModel(
            group=place.group,
            name=model.name,
            description=model.description,
            weights=model.weights,
            licence=model.licence if model.weights else "",
            setting=place.setting,
            plugin="",
        )
    for name, plugin in find_plugins(place.group, place.names).items():
        yield ListedModel(
            group=place.group,
            name=name,
            description="a plugin's",
            weights="",
            licence="",
            setting=place.setting,
            plugin=plugin.origin,
        )
