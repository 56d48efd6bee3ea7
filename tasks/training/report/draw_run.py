"""Charts of a run's metrics: titles, series and axes.

Logged values are drawn faint, their smoothed course bold, held-out values dashed with dots.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from pairwright.tasks.pages.charts import Chart, Line, draw_lines
from pairwright.tasks.training.runs import HELD_OUT, RANKED, TRAIN, UNREADABLE, Entry

SMOOTHED_OVER = 20  # the smoothing window is the number of points divided by this
MOST = 1e15  # larger values count as infinite: they would hide all others
MOST_POINTS = 300  # per line; a longer one is drawn by the minima and maxima of its stretches
Points = NDArray[np.float64]
"""Steps and values, ``(n, 2)``, in the order of steps; a value may be NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Metrics:
    """Logged metrics of a run; ``last`` is the last step."""

    points: Mapping[tuple[str, str], Points]  # by split and name
    last: int
    epoch: float

    def curve(self, name: str, split: str = TRAIN) -> Points:
        """Return a metric's finite points; empty if it was not logged."""
        points = self.points.get((split, name), np.zeros((0, 2)))
        return points[np.abs(points[:, 1]) < MOST]

    def final(self, name: str, split: str = TRAIN) -> float | None:
        """Return a metric's last finite value."""
        points = self.curve(name, split)
        return float(points[-1, 1]) if len(points) else None


def arrange(entries: Iterable[Entry]) -> Metrics:
    """Return a run's metrics, in the order of steps; of a step logged twice, the later value."""
    logged: dict[tuple[str, str], dict[int, float]] = {}
    last_step = 0
    last_epoch = 0.0
    for step, epoch, split, name, value in entries:
        logged.setdefault((split, name), {})[step] = value
        last_step = max(last_step, step)
        last_epoch = max(last_epoch, epoch)
    points = {key: np.array(sorted(values.items()), np.float64) for key, values in logged.items()}
    return Metrics(points, last_step, last_epoch)


def smooth(points: Points) -> Points:
    """Return unbiased exponential means; few points stay unsmoothed."""
    window = len(points) / SMOOTHED_OVER
    if window <= 1:
        return points
    keep = 1 - 1 / window
    means: Any = lfilter([1 - keep], [1, -keep], points[:, 1])
    return np.stack([points[:, 0], means / (1 - keep ** np.arange(1, 1 + len(points)))], axis=1)


class ChartMetric(NamedTuple):
    """Metric of a chart."""

    metric: str
    name: str
    tone: str
    chart: str
    unit: str


LEARNING = (
    ChartMetric("loss", "loss", "plain", "Loss", "what is minimised"),
    ChartMetric("nll", "negative log-likelihood", "third", "Loss", "what is minimised"),
    ChartMetric("reward", "mean of the answers", "chosen", "Reward of answers", "0 to 1"),
    ChartMetric("reward/deviation", "deviation", "third", "Reward of answers", "0 to 1"),
    ChartMetric(
        "reward/equal groups", "groups of equal rewards", "rejected", "Groups and cuts", "share"
    ),
    ChartMetric("answer/cut off", "answers cut off", "third", "Groups and cuts", "share"),
    ChartMetric("answer/tokens", "tokens", "plain", "Length of answers", "tokens, mean"),
    ChartMetric("answer/entropy", "entropy", "plain", "Entropy of answers", "nats per token"),
    ChartMetric("kl", "divergence", "third", "Divergence", "from the start model"),
    ChartMetric("margin", "text", "chosen", "Margin", "reward of the chosen less the rejected"),
    ChartMetric(
        "margin/image", "image", "third", "Margin", "reward of the chosen less the rejected"
    ),
    ChartMetric(
        "margin/exchanged",
        "other order",
        "plain",
        "Margin",
        "reward of the chosen less the rejected",
    ),
    ChartMetric("accuracy", "text", "chosen", "Accuracy", "preferences ranked as they should be"),
    ChartMetric(
        "accuracy/image", "image", "third", "Accuracy", "preferences ranked as they should be"
    ),
    ChartMetric(
        "accuracy/exchanged",
        "other order",
        "plain",
        "Accuracy",
        "preferences ranked as they should be",
    ),
    ChartMetric(
        "reward/chosen", "chosen", "chosen", "Rewards", "beta x log-ratio to the reference"
    ),
    ChartMetric(
        "reward/rejected",
        "rejected text",
        "rejected",
        "Rewards",
        "beta x log-ratio to the reference",
    ),
    ChartMetric(
        "reward/image", "rejected image", "third", "Rewards", "beta x log-ratio to the reference"
    ),
    ChartMetric("logp/chosen", "chosen", "chosen", "Log-probabilities", "of whole answers"),
    ChartMetric("logp/rejected", "rejected", "rejected", "Log-probabilities", "of whole answers"),
    ChartMetric(
        UNREADABLE, "unreadable", "rejected", "Unreadable answers", "share of a few held-out rows"
    ),
    ChartMetric("weight/text", "text", "rejected", "Adaptive weights", "AdaViP, Eq. 13"),
    ChartMetric("weight/image", "image", "third", "Adaptive weights", "AdaViP, Eq. 13"),
)
RETRIEVER = (
    ChartMetric(
        "retriever/entropy share", "entropy", "plain", "Entropy", "share of the uniform entropy"
    ),
    ChartMetric(
        "retriever/effective", "effective", "plain", "Effective candidates", "exp of the entropy"
    ),
    ChartMetric(
        "retriever/candidates", "drawn", "third", "Effective candidates", "exp of the entropy"
    ),
    ChartMetric("retriever/reward", "reward", "plain", "Reward", "of the retriever"),
    ChartMetric("retriever/loss", "loss", "plain", "Loss", "of the retriever"),
    ChartMetric(
        "retriever/most common share",
        "the most common text",
        "third",
        "Doubtful negatives",
        "share of its choices",
    ),
)
SPEED = (
    ChartMetric("learning_rate", "rate", "plain", "Learning rate", ""),
    ChartMetric("grad_norm", "norm", "plain", "Gradient norm", "before clipping"),
    ChartMetric("rows per second", "rows", "plain", "Rows per second", ""),
    ChartMetric("tokens per second", "tokens", "plain", "Tokens per second", ""),
    ChartMetric("memory", "GiB", "plain", "Memory", "GiB, peak"),
)
FACTS = ("retriever/scale", "retriever/tau", "retriever/entropy", RANKED)
"""Not drawn: settings, counts, and duplicates of other charts in other units."""
FROM_ZERO = {
    "Unreadable answers",
    *(
        "Margin",
        "Accuracy",
        "Rewards",
        "Adaptive weights",
        "Entropy",
        "Effective candidates",
        "Doubtful negatives",
    ),
    *(metric.chart for metric in SPEED),
}
"""Charts whose vertical axis includes 0; and 1."""
TO_ONE = {"Accuracy", "Adaptive weights", "Entropy", "Unreadable answers"}
PERCENT = {"Accuracy", "Entropy", "Doubtful negatives", "Unreadable answers"}
EXACT = {"Learning rate"}  # not smoothed


class ChartGroup(NamedTuple):
    """Charts under one heading."""

    title: str
    lead: str
    charts: Sequence[Chart]


@dataclass(frozen=True, eq=False)
class Series:
    """Metric of a chart with its logged and its held-out points."""

    metric: ChartMetric
    train: Points
    held_out: Points

    @property
    def is_empty(self) -> bool:
        """Return whether the metric was never logged."""
        return not len(self.train) and not len(self.held_out)

    def repeats(self, other: "Series") -> bool:
        """Return whether its points are those of another series."""
        if not np.array_equal(self.train, other.train):
            return False
        return np.array_equal(self.held_out, other.held_out)


def draw_run(metrics: Metrics) -> list[ChartGroup]:
    """Return the charts of the logged metrics; unknown metrics get one each."""
    known_names = {metric.metric for metric in (*LEARNING, *RETRIEVER, *SPEED)}
    logged_names = {name for _, name in metrics.points}
    other_names = sorted(logged_names - known_names - set(FACTS))
    others = [ChartMetric(name, name, "plain", name, "") for name in other_names]
    lead = "It chooses negatives for each pair and is rewarded where the policy finds them likely."
    groups = (
        ChartGroup("Learning", "", list(_draw_all(metrics, LEARNING))),
        ChartGroup("The retriever", lead, list(_draw_all(metrics, RETRIEVER))),
        ChartGroup("Steps and speed", "", list(_draw_all(metrics, SPEED))),
        ChartGroup("Further metrics", "", list(_draw_all(metrics, others))),
    )
    return [group for group in groups if group.charts]


def _draw_all(metrics: Metrics, chart_metrics: Iterable[ChartMetric]) -> Iterator[Chart]:
    """Yield one chart per title, without empty series and copies of the first one."""
    by_chart = groupby(chart_metrics, key=lambda metric: (metric.chart, metric.unit))
    for (title, unit), members in by_chart:
        series = [
            Series(member, metrics.curve(member.metric), metrics.curve(member.metric, HELD_OUT))
            for member in members
        ]
        logged = [entry for entry in series if not entry.is_empty]
        if not logged:
            continue
        first, *others = logged
        distinct = [entry for entry in others if not entry.repeats(first)]  # SFT's loss is its nll
        yield _draw_chart([first, *distinct], title, unit, metrics.last)


def _draw_chart(series: Sequence[Series], title: str, unit: str, last: int) -> Chart:
    """Draw metrics with their logged and held-out points."""
    percent = title in PERCENT
    lines = list[Line]()
    rows = list[list[str]]()
    reach = list[Any]()  # values that the vertical axis must cover
    if title in FROM_ZERO:
        reach.append([0.0])
    if title in TO_ONE:
        reach.append([1.0])
    for entry in series:
        train = entry.train
        bold = train if title in EXACT else smooth(train)
        lines += _lines_of(entry, bold, percent=percent)
        rows.append(_row_of(entry, bold, percent=percent))
        reach += [entry.held_out[:, 1], bold[:, 1]]
        if len(train):  # outliers of the faint line may lie outside
            reach.append(np.quantile(train[:, 1], (0.01, 0.99)))
    values = np.concatenate(reach)
    heads = ["", "first", "last"]
    if any(row[3] for row in rows):
        heads.append("held-out")
    return draw_lines(
        lines,
        title=title,
        unit=unit,
        ends=(0.0, max(float(last), 1.0)),
        reach=(float(values.min()), float(values.max())),
        percent=percent,
        legend=[(entry.metric.tone, entry.metric.name, "") for entry in series],
        heads=heads,
        rows=rows,
        summary=" ".join([f"{title}.", *map(_summarise, rows)]),
    )


def _lines_of(entry: Series, bold: Points, *, percent: bool) -> Iterator[Line]:
    """Yield the faint, the bold and the held-out line of a series."""
    if bold is not entry.train:
        yield _draw_line(entry.metric, entry.train, "raw", percent=percent)
    split = TRAIN if len(entry.train) == 1 else ""
    yield _draw_line(entry.metric, bold, "smooth", split, percent=percent)
    yield _draw_line(entry.metric, entry.held_out, "held", HELD_OUT, percent=percent)


def _row_of(entry: Series, bold: Points, *, percent: bool) -> list[str]:
    """Return the table's row of a series: name, first, last and last held-out value."""
    cells = [entry.metric.name]
    for points, index in ((entry.train, 0), (bold, -1), (entry.held_out, -1)):
        cells.append(show_value(points[index, 1], percent=percent) if len(points) else "")
    return cells


def _draw_line(
    metric: ChartMetric, points: Points, kind: str, split: str = "", *, percent: bool
) -> Line:
    """Draw points as a line; with a ``split`` as dots, too."""
    if len(points) > MOST_POINTS:
        points = _thin(points)
    dots = list[str]()
    if split:
        for step, value in points.tolist():
            text = show_value(value, percent=percent)
            dots.append(f"{metric.name}, {split}, step {step:,.0f}: {text}")
    return Line(
        name=metric.name, x=points[:, 0], y=points[:, 1], tone=metric.tone, kind=kind, dots=dots
    )


def _thin(points: Points) -> Points:
    """Return the extremes of each of ``MOST_POINTS / 2`` stretches, and the last point."""
    indices = {len(points) - 1}
    for stretch in np.array_split(np.arange(len(points)), MOST_POINTS // 2):
        values = points[stretch, 1]
        indices |= {stretch[np.argmin(values)], stretch[np.argmax(values)]}
    return points[sorted(indices)]


def show_value(value: float, *, percent: bool = False) -> str:
    """Return a value in three figures."""
    if percent:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _summarise(row: Sequence[str]) -> str:
    """Return a table's row as a sentence."""
    name, first, last, held_out = row
    parts = list[str]()
    if first:
        parts.append(f"from {first} to {last} in training")
    if held_out:
        parts.append(f"{held_out} on held-out rows")
    return f"{name}: {', '.join(parts)}."
