"""Show trainings: the list of a dataset's runs, and the progress of one.

Progress is a bar on a terminal, lines elsewhere.

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
from pairwright.tasks.evaluation.measured import Score
from pairwright.tasks.store.evaluations import EvaluationRow, read_evaluations
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.objective_list import OBJECTIVES
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
        return [
            self.name,
            self.objective,
            self.model,
            self.start or "-",
            "-" if self.version is None else self.version,
            self.step,
            _show_number(self.loss),
            _show_number(self.held_out_loss),
            _show_number(self.held_out_margin),
            "yes" if self.finished else "no",
        ]

    def score_cells(self) -> Iterator[list[object]]:
        """Yield its scores as cells of a table."""
        for row in self.evaluations:
            time = row.at[:16].replace("T", " ")
            origin = [Path(row.data).name, row.asked or "-", time]
            yield [self.name, row.benchmark, *show_score(row), *origin]


def _show_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def show_score(score: Score | EvaluationRow) -> tuple[object, ...]:
    """Return name, category, value, interval and number of items; shares are times 100."""

    def format_value(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{100 * value:.2f} %" if score.percent else f"{value:.3f}"

    interval = ""
    if score.low is not None and score.high is not None:
        interval = f"{format_value(score.low)} to {format_value(score.high)}"
    return score.name, score.category or "all", format_value(score.value), interval, score.items


def list_runs(folder: Folder) -> list[RunSummary]:
    """Return a dataset's runs by name."""
    if not folder.is_local:
        raise ConfigError(f"{folder.url}: runs are on local disks")
    summaries = list[RunSummary]()
    for path in sorted(Path(folder.path(RUNS)).glob("*/config.yaml")):
        evaluations = read_evaluations(folder, path.parent.name)
        summaries.append(_summarise(Run(path.parent), evaluations))
    return summaries


def _summarise(run: Run, evaluations: list[EvaluationRow]) -> RunSummary:
    metrics = MetricsFile(run.metrics).read_until()
    train = metrics.last(TRAIN)
    held_out = metrics.last(HELD_OUT)
    objective = "?"
    model = "?"
    start = "?"
    version = None
    problem = ""
    try:
        config = run.config()
        if config:
            objective = config.objective
            start = config.start
            version = run.data().get("snapshot")
            model = OBJECTIVES[objective].describe_model(config)
    except ConfigError as error:
        problem = str(error)
    return RunSummary(
        name=run.folder.name,
        objective=objective,
        model=model,
        start=start,
        version=version,
        step=_find_last_step(run, metrics),
        finished=run.is_finished,
        loss=train.get("loss"),
        held_out_loss=held_out.get("loss"),
        held_out_margin=held_out.get("margin"),
        evaluations=evaluations,
        problem=problem,
    )


def _find_last_step(run: Run, metrics: MetricsFile) -> int:
    """Return the step of the last checkpoint, or of the finished model."""
    steps = run.steps()
    if steps:
        return steps[-1]
    if not run.is_finished:
        return 0
    return max((step for step, *_ in metrics.entries), default=0)


log = logging.getLogger("pairwright")
SHOWN = (
    "loss",
    "reward",
    "margin",
    "accuracy",
    "margin/image",
    "accuracy/image",
    "nll",
    "loss/description",
)
"""Metrics that are shown during training."""
RATE = "rows per second"
BAR = 12  # width of the bar in characters


class TrainingLines:
    """Training progress as lines in the log, one per logged step."""

    _steps = 0

    def begin(self, step: int, steps: int) -> None:
        """Log the steps to do."""
        self._steps = steps
        if step:
            log.info("training: %s", f"{steps - step:,} of {steps:,} steps to do")
        else:
            log.info("training: %s", f"{steps:,} steps")

    def advance(self, step: int) -> None:
        """Do nothing: lines are written for logged steps only."""

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write the line."""
        suffix = "" if split == "train" else f", {split}"
        log.info("step %d/%d%s: %s", step, self._steps, suffix, describe_metrics(values))


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
            self.progress.update(self._task, values=describe_metrics(values))
        else:
            self.progress.console.print(
                f"step {step:,}, {split}: {describe_metrics(values)}", highlight=False
            )


def describe_metrics(values: Mapping[str, float]) -> str:
    """Return the main metrics in words."""
    parts = [f"{name} {values[name]:.4g}" for name in SHOWN if name in values]
    if RATE in values:
        parts.insert(3, f"{values[RATE]:.3g} rows/s")
    return ", ".join(parts)


@contextmanager
def watching_training() -> Generator[TrainingLines | TrainingBar]:
    """Yield the watcher of a training's progress."""
    if not draws_bars():
        yield TrainingLines()
        return
    bar = TrainingBar(Console(stderr=True))
    with bar.progress:
        yield bar
