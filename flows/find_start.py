"""Find what a training run starts from: a model, or the finished model of another run; write the small stand-ins.

A run that goes on starts from the same model as before, or not at all.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.flows.table import Table
from pairwright.flows.version import Version, open_version
from pairwright.schemas.differential import DifferentialConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import SMALL, TINY, ModelConfig, TrainConfig
from pairwright.tasks.models.pretrained import is_local
from pairwright.tasks.models.weights import absolute
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.find_model import find_model, find_module, read_module, require_packages
from pairwright.tasks.training.runs import Run
from pairwright.tasks.training.tiny_model import write_tiny_model

if TYPE_CHECKING:
    from pairwright.tasks.training.find_model import Found

TABLE = "preferences"


@dataclass(frozen=True, kw_only=True)
class Start:
    """Starting point of a run."""

    found: "Found"
    config: TrainConfig
    """The run's settings with the name and the revision of the model: with ``start``, of the first run's."""

    def describe(self) -> dict[str, Any]:
        """Return what the run remembers of it."""
        return {"folder": str(self.found.folder), "revision": self.found.revision}


def find_start(folder: Folder, config: TrainConfig, run: "Run", *, version: int | None = None) -> Start:
    """Return what a run starts from.

    Args:
        folder: the dataset.
        config: what is asked for.
        run: perhaps begun already; then it goes on with the same model.
        version: the number of the version that it trains on; none: the newest.

    Raises:
        ConfigError: the run to start from is not there, not finished, or of another model.
        ModelError: the model is not on this machine, or no longer the same.
    """
    require_packages()
    before = run.config()
    begun: dict[str, Any] = run.data().get("start", {}) if before else {}
    model: dict[str, Any]
    if config.start:
        other = find_run(folder, config.start)
        model = _model_of(other, config)
        found = find_model(str(other.model), field="--from")
    else:
        wanted = config.model.revision or (before.model.revision if before else "")
        name = config.model.name
        if name in (TINY, SMALL):
            known = begun.get("folder", "")
            name = known if known and Path(known).is_dir() else str(_write_small(open_version(folder, version), name))
        found = find_model(name, wanted)
        model = {"name": _lasting(config.model), "revision": found.revision}
    if begun and begun["revision"] != found.revision:
        raise ConfigError(
            f"{run.folder} began with another model than {found.folder} now holds. Put the old one back, or give "
            "another --name"
        )
    model |= {"differential": _perceives_as(found, config)}
    return Start(found=found, config=config.model_copy(update={"model": config.model.model_copy(update=model)}))


def _perceives_as(found: "Found", config: TrainConfig) -> DifferentialConfig:
    """Return how the run's model perceives differences: as the model that it starts from, where that one does.

    Raises:
        ConfigError: it does, and is asked not to, or to do so otherwise.
    """
    own, place = config.model.differential, find_module(found.folder)
    if place is None:
        return own
    if not own.enabled:
        raise ConfigError(
            f"{found.folder}: has a module of differential perception, which would be lost. Keep it with "
            f"--differential, which --objective sft takes{'' if config.objective == 'sft' else ' alone'}"
        )
    begun = read_module(place)
    changed = [name for name in sorted(own.model_fields_set) if getattr(own, name) != getattr(begun, name)]
    if changed:
        raise ConfigError(
            f"model.differential.{changed[0]}: is {getattr(begun, changed[0])} in {place}, which the run starts from"
        )
    return begun


def _lasting(model: ModelConfig) -> str:
    """Return a model's name such that it means the same from anywhere."""
    return absolute(model.name) if model.name not in (TINY, SMALL) and is_local(model.name) else model.name


def find_run(folder: Folder, name: str) -> "Run":
    """Return a finished run: of that name in the dataset, or in that folder.

    Raises:
        ConfigError: there is none, or it is not finished; the message lists those that are.
    """
    runs = Path(folder.path("runs"))
    run = next(
        (Run(place) for place in (runs / name, Path(name).expanduser()) if (place / "config.yaml").exists()), None
    )
    if run and run.is_finished:
        return run
    there = sorted(place.name for place in runs.glob("*") if Run(place).is_finished) if runs.is_dir() else []
    what = f"{run.folder} is not finished: give its command again" if run else f"no run is called so in {runs}"
    raise ConfigError(f"--from {name}: {what}. Finished there: {', '.join(there) or 'none'}")


def _model_of(other: "Run", config: TrainConfig) -> dict[str, Any]:
    """Return the name and the revision of the model that a finished run began with.

    Raises:
        ConfigError: it is not the one that ``--model`` names.
    """
    settings = other.config()
    assert settings is not None
    own, asked = settings.model, config.model
    if "name" in asked.model_fields_set and _lasting(asked) != own.name:
        small = {asked.name, own.name} & {TINY, SMALL}
        if small or find_model(asked.name, asked.revision).revision != own.revision:
            raise ConfigError(f"--from {config.start}: that run trained {own.name}, and --model says {asked.name}")
    return {"name": own.name, "revision": own.revision}


def _write_small(version: Version, size: str) -> Path:
    """Write one of the small stand-ins beside the dataset, its tokens learnt from the dataset's texts."""
    rows = Table[PreferenceRow](version, TABLE).rows(without=("images", "rejected_images"))
    texts = [text for row in rows for text in _texts(row)]
    return write_tiny_model(Path(version.folder.path("models")), texts, size=size)


def _texts(row: PreferenceRow) -> Iterable[str]:
    return (row.chosen, row.rejected, *(turn.text for turn in row.prompt))
