"""Write the page of a reproduced paper, DIR/index.html: its tables, ours beside the paper's.

Like a run's page it opens from disk; each training has a page of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from pairwright.tasks.pages.charts import Chart, Line, draw_lines
from pairwright.tasks.pages.environment import copy_looks, make_environment, write_page
from pairwright.tasks.training.report.draw_run import Metrics, Points, arrange
from pairwright.tasks.training.runs import HELD_OUT, MetricsFile, Run

HERE = Path(__file__).parent
TONES = ("plain", "rejected", "third")
LOSS = "nll"
RATE = "rows per second"


@dataclass(frozen=True, kw_only=True)
class ArmScores:
    """Arm of a table: our scores, and the paper's."""

    arm: str
    about: str  # its name in the paper
    ours: Sequence[float | None]  # ``None``: not measured, or not yet
    theirs: Sequence[float | None]  # ``None``: not printed

    def cells(self) -> list[str]:
        """Return name, our scores and the paper's, as text."""
        name = f"{self.arm}: {self.about}" if self.about else self.arm
        numbers = [*self.ours, *self.theirs]
        return [name, *("-" if number is None else f"{number:.1f}" for number in numbers)]


@dataclass(frozen=True, kw_only=True)
class TableScores:
    """Table of a paper with the scores so far."""

    name: str
    columns: Sequence[str]
    rows: Sequence[ArmScores]
    notes: Sequence[str]

    @property
    def heads(self) -> list[str]:
        """Return the heads: the arm, our columns, the paper's."""
        paper = [f"{column} (paper)" for column in self.columns]
        return ["arm", *self.columns, *paper]


@dataclass(frozen=True, kw_only=True)
class ArmTraining:
    """Training of an arm on a dataset."""

    name: str
    run: Run
    paper_rate: float | None = None  # rows per second in the paper; ``None``: not printed

    @property
    def metrics(self) -> Metrics:
        """Return what it has logged so far."""
        return arrange(MetricsFile(self.run.metrics).read_until().entries)

    def cells(self) -> list[str]:
        """Return its steps, its rows per second (the median) and the paper's, as text."""
        metrics = self.metrics
        points = metrics.curve(RATE)
        rate = f"{np.median(points[:, 1]):.3g}" if len(points) else "-"
        paper_rate = "-" if self.paper_rate is None else f"{self.paper_rate:.3g}"
        return [f"{metrics.last:,}", rate, paper_rate]

    def link(self, folder: Path) -> str:
        """Return the address of its page from a folder's; empty: there is none yet."""
        report = self.run.folder / "report" / "index.html"
        return report.relative_to(folder).as_posix() if report.exists() else ""


def write_reproduction_page(
    folder: Path,
    *,
    title: str,
    options: Mapping[str, Any],
    outcomes: Sequence[TableScores],
    left_out: Mapping[str, str],
    differences: Sequence[str],
    trainings: Sequence[ArmTraining],
    rates_table: str,
) -> Path:
    """Rewrite the page, and return its path; ``rates_table``: the paper's table of rates."""
    copy_looks(folder, [HERE / "run.css"])
    template = make_environment(HERE).get_template("reproduction.html.j2")
    rows = [(training.name, training.link(folder), training.cells()) for training in trainings]
    page = template.render(
        title=title,
        subject={"name": title},
        options=options,
        outcomes=outcomes,
        left_out=left_out,
        differences=differences,
        trainings=rows,
        rates_table=rates_table,
        chart=_draw_losses(trainings),
    )
    write_page(folder / "index.html", page)
    return folder / "index.html"


def _read_losses(trainings: Sequence[ArmTraining]) -> dict[str, Points]:
    """Return the held-out losses by step of the trainings that measured any."""
    curves = {training.name: training.metrics.curve(LOSS, HELD_OUT) for training in trainings}
    return {name: points for name, points in curves.items() if len(points)}


def _draw_losses(trainings: Sequence[ArmTraining]) -> Chart | None:
    """Draw the held-out loss of each training; ``None`` where none was measured."""
    curves = _read_losses(trainings)
    if not curves:
        return None
    values = np.concatenate([points[:, 1] for points in curves.values()])
    last = max(float(points[-1, 0]) for points in curves.values())
    tones = dict(zip(curves, cycle(TONES), strict=False))
    rows = [
        (name, f"{points[0, 1]:.3f}", f"{points[-1, 1]:.3f}") for name, points in curves.items()
    ]
    return draw_lines(
        [_draw_loss(name, points, tones[name]) for name, points in curves.items()],
        title="Held-out loss",
        unit="negative log-likelihood per token of the chosen text, by step",
        ends=(0.0, max(last, 1.0)),
        reach=(float(values.min()), float(values.max())),
        legend=[(tone, name, "") for name, tone in tones.items()],
        heads=("training", "first", "last"),
        rows=rows,
        summary="; ".join(f"{name}: {first} to {end}" for name, first, end in rows),
    )


def _draw_loss(name: str, points: Points, tone: str) -> Line:
    """Return a training's line, with a dot per measurement."""
    dots = [f"{name}, step {step:.0f}: {value:.3f}" for step, value in points]
    return Line(name=name, x=points[:, 0], y=points[:, 1], tone=tone, dots=dots)
