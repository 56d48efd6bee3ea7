"""List the training runs of a dataset. Reads what they write; needs no PyTorch."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.metrics import HELD_OUT, TRAIN, read_metrics
from pairwright.tasks.training.runs import Run


@dataclass(frozen=True, kw_only=True)
class Listed:
    """Run in the list."""

    name: str
    objective: str
    model: str
    start: str
    """The run that it started from; empty: none."""
    version: int | None
    """The number of the version that it trains on; none: there was none yet."""
    step: int
    """Of the last checkpoint."""
    finished: bool
    loss: float | None
    held_out_loss: float | None
    held_out_margin: float | None
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return asdict(self)


def list_runs(dataset: str) -> list[Listed]:
    """Return a dataset's runs by name.

    Raises:
        ConfigError: the dataset is not on a local disk.
    """
    folder = Folder(dataset)
    if not folder.is_local:
        raise ConfigError(f"{folder.url}: runs are on local disks")
    places = sorted(Path(folder.path("runs")).glob("*/config.yaml"))
    return [_look_at(Run(place.parent)) for place in places]


def _look_at(run: Run) -> Listed:
    metrics = read_metrics(run.metrics)
    steps = run.steps()
    train, held_out = metrics.last(TRAIN), metrics.last(HELD_OUT)
    try:
        config, version = run.config(), run.data().get("snapshot")
        problem = ""
    except ConfigError as error:
        config, version, problem = None, None, str(error)
    return Listed(
        name=run.folder.name,
        objective=config.objective if config else "?",
        model=_model_of(config) if config else "?",
        start=config.start if config else "?",
        version=version,
        step=steps[-1] if steps else 0,
        finished=run.is_finished,
        loss=train.get("loss"),
        held_out_loss=held_out.get("loss"),
        held_out_margin=held_out.get("margin"),
        problem=problem,
    )


def _model_of(config: TrainConfig) -> str:
    if config.objective == NAMC:
        return f"namc {config.namc.size}"
    return f"{config.model.name}{' differential' if config.model.differential.enabled else ''}"


def runs_table(found: list[Listed]) -> Table:
    """Return the list as a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("run", "objective", "model", "from"):
        table.add_column(name, overflow="fold")
    for name in ("version", "step", "loss", "held-out loss", "margin"):
        table.add_column(name, justify="right")
    table.add_column("finished")
    for one in found:
        numbers = [_shown(value) for value in (one.loss, one.held_out_loss, one.held_out_margin)]
        done = "yes" if one.finished else "no"
        version = "-" if one.version is None else str(one.version)
        table.add_row(one.name, one.objective, one.model, one.start or "-", version, f"{one.step:,}", *numbers, done)
    return table


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
