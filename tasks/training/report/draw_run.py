"""Charts of a run's metrics: titles, series and axes.

Logged values are drawn faint, their smoothed course bold, held-out values dashed with dots.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.pages.charts import Chart, Line, draw_lines
from pairwright.tasks.training.runs import HELD_OUT, RANKED, TRAIN, UNREADABLE, Entry

SMOOTHED_OVER = 20  # the smoothing window is the number of points divided by this
MOST = 1e15  # larger values count as infinite: they would hide all others
MOST_POINTS = 300  # per line; a longer one is drawn by the minima and maxima of its stretches
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Points:
    """Values at steps, both ``(n,)``, in the order of steps; a value may be NaN or infinite."""

    steps: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, places: Sequence[int] | NDArray[np.bool_]) -> "Points":
        """Return a selection."""
        return Points(self.steps[places], self.values[places])

    def finite(self) -> "Points":
        """Return the points that can be drawn."""
        return self.at(np.abs(self.values) < MOST)


NOTHING = Points(np.zeros(0), np.zeros(0))


@dataclass(frozen=True, eq=False)
class Metrics:
    """Logged metrics of a run; ``last`` is the last step."""

    points: Mapping[tuple[str, str], Points]  # by split and name
    last: int
    epoch: float

    def of(self, name: str, split: str = TRAIN) -> Points:
        """Return a metric's finite points; empty if it was not logged."""
        return self.points.get((split, name), NOTHING).finite()

    def final(self, name: str, split: str = TRAIN) -> float | None:
        """Return a metric's last finite value."""
        values = self.of(name, split).values
        return float(values[-1]) if len(values) else None


def arrange(entries: Iterable[Entry]) -> Metrics:
    """Return a run's metrics, in the order of steps; of a step logged twice, the later value."""
    logged: dict[tuple[str, str], dict[int, float]] = {}
    last, reached = 0, 0.0
    for step, epoch, split, name, value in entries:
        logged.setdefault((split, name), {})[step] = value
        last, reached = max(last, step), max(reached, epoch)
    points = {key: Points(*np.array(sorted(values.items()), np.float64).T) for key, values in logged.items()}
    return Metrics(points, last, reached)


def smooth(points: Points) -> Points:
    """Return unbiased exponential means; few points stay unsmoothed."""
    window = len(points) / SMOOTHED_OVER
    if window <= 1:
        return points
    keep, mean, means = 1 - 1 / window, 0.0, np.empty(len(points))
    for number, value in enumerate(points.values.tolist()):
        mean = keep * mean + (1 - keep) * value
        means[number] = mean / (1 - keep ** (number + 1))
    return Points(points.steps, means)


class Shown(NamedTuple):
    """Metric of a chart."""

    metric: str
    name: str
    tone: str
    chart: str
    unit: str


LEARNING = (
    Shown("loss", "loss", "plain", "Loss", "what is minimised"),
    Shown("nll", "negative log-likelihood", "third", "Loss", "what is minimised"),
    Shown("margin", "text", "chosen", "Margin", "reward of the chosen less the rejected"),
    Shown("margin/image", "image", "third", "Margin", "reward of the chosen less the rejected"),
    Shown("accuracy", "text", "chosen", "Accuracy", "preferences ranked as they should be"),
    Shown("accuracy/image", "image", "third", "Accuracy", "preferences ranked as they should be"),
    Shown("reward/chosen", "chosen", "chosen", "Rewards", "beta x log-ratio to the reference"),
    Shown("reward/rejected", "rejected text", "rejected", "Rewards", "beta x log-ratio to the reference"),
    Shown("reward/image", "rejected image", "third", "Rewards", "beta x log-ratio to the reference"),
    Shown("logp/chosen", "chosen", "chosen", "Log-probabilities", "of whole answers"),
    Shown("logp/rejected", "rejected", "rejected", "Log-probabilities", "of whole answers"),
    Shown(UNREADABLE, "unreadable", "rejected", "Unreadable answers", "share of a few held-out rows"),
    Shown("weight/text", "text", "rejected", "Adaptive weights", "AdaViP, Eq. 13"),
    Shown("weight/image", "image", "third", "Adaptive weights", "AdaViP, Eq. 13"),
)
TRUE_SHARE = "true of their pair, where that is known"
RETRIEVER = (
    Shown("retriever/entropy share", "entropy", "plain", "Entropy", "of its choice, next to a uniform one"),
    Shown("retriever/effective", "effective", "plain", "Effective candidates", "exp of the entropy"),
    Shown("retriever/candidates", "drawn", "third", "Effective candidates", "exp of the entropy"),
    Shown("retriever/reward", "reward", "plain", "Reward", "of the retriever"),
    Shown("retriever/loss", "loss", "plain", "Loss", "of the retriever"),
    Shown("retriever/true share", TRUE_SHARE, "rejected", "Doubtful negatives", "share of its choices"),
    Shown("retriever/most common share", "the most common text", "third", "Doubtful negatives", "share of its choices"),
)
SPEED = (
    Shown("learning_rate", "rate", "plain", "Learning rate", ""),
    Shown("grad_norm", "norm", "plain", "Gradient norm", "before it is cut"),
    Shown("rows per second", "rows", "plain", "Rows per second", ""),
    Shown("tokens per second", "tokens", "plain", "Tokens per second", ""),
    Shown("memory", "GiB", "plain", "Memory", "GiB, the highest"),
)
FACTS = ("retriever/scale", "retriever/tau", "retriever/entropy", RANKED)
"""Not drawn: settings, counts, and duplicates of other charts in other units."""
FROM_ZERO = {
    "Unreadable answers",
    *("Margin", "Accuracy", "Rewards", "Adaptive weights", "Entropy", "Effective candidates", "Doubtful negatives"),
    *(one.chart for one in SPEED),
}
"""Charts whose vertical axis includes 0; and 1."""
TO_ONE = {"Accuracy", "Adaptive weights", "Entropy", "Unreadable answers"}
PERCENT = {"Accuracy", "Entropy", "Doubtful negatives", "Unreadable answers"}
EXACT = {"Learning rate"}  # not smoothed


class Section(NamedTuple):
    """Charts under one heading."""

    title: str
    lead: str
    charts: Sequence[Chart]


def draw_run(metrics: Metrics) -> list[Section]:
    """Return the charts of the logged metrics; unknown metrics get one each."""
    known = {one.metric for one in (*LEARNING, *RETRIEVER, *SPEED)}
    rest = sorted({name for _, name in metrics.points} - known - set(FACTS))
    chooses = "It chooses negatives for each pair and is rewarded where the policy finds them likely."
    sections = (
        ("Learning", "", LEARNING),
        ("The retriever", chooses, RETRIEVER),
        ("Steps and speed", "", SPEED),
        ("Further metrics", "", [Shown(name, name, "plain", name, "") for name in rest]),
    )
    drawn = [Section(title, lead, list(_draw_all(metrics, shown))) for title, lead, shown in sections]
    return [section for section in drawn if section.charts]


def _draw_all(metrics: Metrics, shown: Iterable[Shown]) -> Iterator[Chart]:
    for (title, unit), own in groupby(shown, key=lambda one: (one.chart, one.unit)):
        if series := list(_make_series(metrics, own)):
            yield _draw_chart(series, title, unit, metrics.last)


class Series(NamedTuple):
    """Metric of a chart: logged, smoothed and held-out values, all finite."""

    name: str
    tone: str
    train: Points
    bold: Points
    held_out: Points

    def lines(self, *, percent: bool) -> Iterator[Line]:
        """Yield the lines to draw; held-out values, and a single point, are dots."""
        parts = [(self.train, "raw", "")] if self.bold is not self.train else []
        single = TRAIN if len(self.train) == 1 else ""
        for points, kind, split in (*parts, (self.bold, "smooth", single), (self.held_out, "held", HELD_OUT)):
            kept = thin(points)
            at = zip(kept.steps.tolist(), kept.values.tolist(), strict=True) if split else ()
            dots = [f"{self.name}, {split}, step {step:,.0f}: {show_value(y, percent=percent)}" for step, y in at]
            yield Line(name=self.name, x=kept.steps, y=kept.values, tone=self.tone, kind=kind, dots=dots)

    def row(self, *, percent: bool) -> list[str]:
        """Return its name, first and last value, and last held-out value."""
        ends = ((self.train, 0), (self.bold, -1), (self.held_out, -1))
        values = (show_value(float(one.values[at]), percent=percent) if len(one) else "" for one, at in ends)
        return [self.name, *values]


def _make_series(metrics: Metrics, shown: Iterable[Shown]) -> Iterator[Series]:
    """Yield a chart's series, without copies of the first one, such as SFT's likelihood and loss."""
    first: list[list[float]] = []
    for one in shown:
        train, held_out = metrics.of(one.metric), metrics.of(one.metric, HELD_OUT)
        values = [train.values.tolist(), held_out.values.tolist()]
        if any(values) and values != first:
            first = first or values
            yield Series(one.name, one.tone, train, train if one.chart in EXACT else smooth(train), held_out)


def _draw_chart(series: Sequence[Series], title: str, unit: str, last: int) -> Chart:
    percent = title in PERCENT
    rows = [one.row(percent=percent) for one in series]
    # Outliers of the faint line, beyond the 1st and 99th percentile, may lie outside.
    parts = [[0.0] * (title in FROM_ZERO) + [1.0] * (title in TO_ONE)]
    for one in series:
        parts += [one.held_out.values, one.bold.values]
        parts += [np.quantile(one.train.values, (0.01, 0.99))] if len(one.train) else []
    values = np.concatenate(parts)
    return draw_lines(
        [line for one in series for line in one.lines(percent=percent)],
        title=title,
        unit=unit,
        ends=(0.0, max(float(last), 1.0)),
        reach=(float(values.min()), float(values.max())),
        percent=percent,
        legend=[(one.tone, one.name, "") for one in series],
        heads=["", "first", "last", *["held-out"] * any(row[3] for row in rows)],
        rows=rows,
        summary=" ".join([f"{title}.", *map(_summarise, rows)]),
    )


def thin(points: Points) -> Points:
    """Return the lowest and highest point of each of ``MOST_POINTS / 2`` stretches; few points stay unchanged."""
    if len(points) <= MOST_POINTS:
        return points
    parts = np.array_split(np.arange(len(points)), MOST_POINTS // 2)
    kept = {part[at(points.values[part])] for part in parts for at in (np.argmin, np.argmax)} | {len(points) - 1}
    return points.at(sorted(kept))


def show_value(value: float, *, percent: bool = False) -> str:
    """Return a value in three figures."""
    if percent:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _summarise(row: Sequence[str]) -> str:
    name, first, last, held_out = row
    parts = [f"from {first} to {last} in training"] if first else []
    parts += [f"{held_out} on held-out rows"] if held_out else []
    return f"{name}: {', '.join(parts)}."
