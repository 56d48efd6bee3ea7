"""Show trainings: the list of a dataset's runs, and the progress of one (a bar on a terminal, lines elsewhere).

Reads the files of runs; needs no PyTorch.
"""

import logging
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from pairwright.flows.building.progress import draws_bars
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import NAMC
from pairwright.tasks.evaluation.measured import Score
from pairwright.tasks.store.evaluations import EvaluationRow, read_evaluations
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.runs import HELD_OUT, RUNS, TRAIN, MetricsFile, Run


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """Run in the list."""

    name: str
    objective: str
    model: str
    start: str  # run that it started from; empty: none
    version: int | None  # number of the version that it trains on; ``None``: there was none yet
    step: int
    finished: bool
    loss: float | None
    held_out_loss: float | None
    held_out_margin: float | None
    evaluations: list[EvaluationRow]  # scores on benchmarks
    problem: str = ""

    def cells(self) -> list[object]:
        """Return its cells in a table."""
        losses = (self.loss, self.held_out_loss, self.held_out_margin)
        numbers = ("-" if value is None else f"{value:.4g}" for value in losses)
        version = "-" if self.version is None else self.version
        done = "yes" if self.finished else "no"
        return [
            self.name,
            self.objective,
            self.model,
            self.start or "-",
            version,
            self.step,
            *numbers,
            done,
        ]

    def scores(self) -> Iterator[list[object]]:
        """Yield its scores as cells of a table."""
        for one in self.evaluations:
            asked = [Path(one.data).name, one.asked or "-", one.at[:16].replace("T", " ")]
            yield [self.name, one.benchmark, *show_score(one), *asked]


def show_score(score: Score | EvaluationRow) -> tuple[object, ...]:
    """Return name, category, value, interval and number of items; shares are times 100."""
    value, low, high = (
        "-" if one is None else f"{100 * one:.2f} %" if score.percent else f"{one:.3f}"
        for one in (score.value, score.low, score.high)
    )
    return (
        score.name,
        score.category or "all",
        value,
        "" if "-" in (low, high) else f"{low} to {high}",
        score.items,
    )


def list_runs(folder: Folder) -> list[RunSummary]:
    """Return a dataset's runs by name."""
    if not folder.is_local:
        raise ConfigError(f"{folder.url}: runs are on local disks")
    places = sorted(Path(folder.path(RUNS)).glob("*/config.yaml"))
    return [
        _look_at(Run(place.parent), read_evaluations(folder, place.parent.name)) for place in places
    ]


def _look_at(run: Run, evaluations: list[EvaluationRow]) -> RunSummary:
    metrics, steps = MetricsFile(run.metrics).resume(), run.steps()
    train, held_out = metrics.last(TRAIN), metrics.last(HELD_OUT)
    objective, model, start, version, problem = "?", "?", "?", None, ""
    try:
        if config := run.config():
            objective, start, version = config.objective, config.start, run.data().get("snapshot")
            differential = " differential" if config.model.differential.enabled else ""
            model = (
                f"namc {config.namc.size}"
                if objective == NAMC
                else f"{config.model.name}{differential}"
            )
    except ConfigError as error:
        problem = str(error)
    return RunSummary(
        name=run.folder.name,
        objective=objective,
        model=model,
        start=start,
        version=version,
        step=steps[-1]
        if steps
        else max((entry[0] for entry in metrics.entries), default=0) * run.is_finished,
        finished=run.is_finished,
        loss=train.get("loss"),
        held_out_loss=held_out.get("loss"),
        held_out_margin=held_out.get("margin"),
        evaluations=evaluations,
        problem=problem,
    )


log = logging.getLogger("pairwright")
SHOWN = ("loss", "margin", "accuracy", "margin/image", "accuracy/image", "nll", "loss/description")
"""Metrics that are shown during training."""
RATE = "rows per second"
BAR = 12  # width of the bar in characters


class TrainingLines:
    """Training progress as lines in the log, one per logged step."""

    _steps = 0

    def begin(self, step: int, steps: int) -> None:
        """Log the steps to do."""
        self._steps = steps
        log.info(
            "training: %s",
            f"{steps - step:,} of {steps:,} steps to do" if step else f"{steps:,} steps",
        )

    def advance(self, step: int) -> None:
        """Do nothing: lines are written for logged steps only."""

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write the line."""
        about = "" if split == "train" else f", {split}"
        log.info("step %d/%d%s: %s", step, self._steps, about, describe(values))


class TrainingBar:
    """Training progress as a bar on a terminal."""

    def __init__(self, console: Console) -> None:
        values = TextColumn(
            "{task.fields[values]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        )
        columns = (BarColumn(bar_width=BAR), MofNCompleteColumn(), values, TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, expand=True)
        self._task = self.progress.add_task("training", values="", visible=False)

    def begin(self, step: int, steps: int) -> None:
        """Start the bar at the run's current step."""
        self.progress.update(self._task, total=steps, completed=step, visible=True)

    def advance(self, step: int) -> None:
        """Move the bar."""
        self.progress.update(self._task, completed=step)

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Show the newest means beside the bar, and measurements on held-out rows above it."""
        if split == "train":
            self.progress.update(self._task, values=describe(values))
        else:
            self.progress.console.print(
                f"step {step:,}, {split}: {describe(values)}", highlight=False
            )


def describe(values: Mapping[str, float]) -> str:
    """Return the main metrics in words."""
    shown = [f"{name} {values[name]:.4g}" for name in SHOWN if name in values]
    if RATE in values:
        shown.insert(min(3, len(shown)), f"{values[RATE]:.3g} rows/s")
    return ", ".join(shown)


@contextmanager
def watching_training() -> Generator[TrainingLines | TrainingBar]:
    """Yield the watcher of a training's progress."""
    if not draws_bars():
        yield TrainingLines()
        return
    bar = TrainingBar(Console(stderr=True))
    with bar.progress:
        yield bar
