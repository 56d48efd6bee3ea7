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

    def of(self, name: str, split: str = TRAIN) -> Points:
        """Return a metric's finite points; empty if it was not logged."""
        found = self.points.get((split, name), np.zeros((0, 2)))
        return found[np.abs(found[:, 1]) < MOST]

    def final(self, name: str, split: str = TRAIN) -> float | None:
        """Return a metric's last finite value."""
        found = self.of(name, split)
        return float(found[-1, 1]) if len(found) else None


def arrange(entries: Iterable[Entry]) -> Metrics:
    """Return a run's metrics, in the order of steps; of a step logged twice, the later value."""
    logged: dict[tuple[str, str], dict[int, float]] = {}
    last, reached = 0, 0.0
    for step, epoch, split, name, value in entries:
        logged.setdefault((split, name), {})[step] = value
        last, reached = max(last, step), max(reached, epoch)
    points = {key: np.array(sorted(values.items()), np.float64) for key, values in logged.items()}
    return Metrics(points, last, reached)


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
    ChartMetric("margin", "text", "chosen", "Margin", "reward of the chosen less the rejected"),
    ChartMetric(
        "margin/image", "image", "third", "Margin", "reward of the chosen less the rejected"
    ),
    ChartMetric("accuracy", "text", "chosen", "Accuracy", "preferences ranked as they should be"),
    ChartMetric(
        "accuracy/image", "image", "third", "Accuracy", "preferences ranked as they should be"
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
    *(one.chart for one in SPEED),
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


def draw_run(metrics: Metrics) -> list[ChartGroup]:
    """Return the charts of the logged metrics; unknown metrics get one each."""
    known = {one.metric for one in (*LEARNING, *RETRIEVER, *SPEED)}
    rest = sorted({name for _, name in metrics.points} - known - set(FACTS))
    chooses = (
        "It chooses negatives for each pair and is rewarded where the policy finds them likely."
    )
    sections = (
        ("Learning", "", LEARNING),
        ("The retriever", chooses, RETRIEVER),
        ("Steps and speed", "", SPEED),
        ("Further metrics", "", [ChartMetric(name, name, "plain", name, "") for name in rest]),
    )
    drawn = [
        ChartGroup(title, lead, list(_draw_all(metrics, shown))) for title, lead, shown in sections
    ]
    return [section for section in drawn if section.charts]


def _draw_all(metrics: Metrics, shown: Iterable[ChartMetric]) -> Iterator[Chart]:
    for (title, unit), own in groupby(shown, key=lambda one: (one.chart, one.unit)):
        series = [(one, metrics.of(one.metric), metrics.of(one.metric, HELD_OUT)) for one in own]
        series = [one for one in series if len(one[1]) or len(one[2])]
        # Without copies of the first one, such as SFT's likelihood and loss.
        same = [all(map(np.array_equal, one[1:], series[0][1:])) for one in series[1:]]
        if series := [
            *series[:1],
            *(one for one, is_copy in zip(series[1:], same, strict=True) if not is_copy),
        ]:
            yield _draw_chart(series, title, unit, metrics.last)


def _draw_chart(
    series: Sequence[tuple[ChartMetric, Points, Points]], title: str, unit: str, last: int
) -> Chart:
    """Draw metrics with their logged and held-out points."""
    percent, lines, rows = title in PERCENT, list[Line](), list[list[str]]()
    seen = [[0.0] * (title in FROM_ZERO) + [1.0] * (title in TO_ONE)]
    for one, train, held_out in series:
        bold = train if title in EXACT else smooth(train)
        if bold is not train:
            lines.append(_draw_line(one, train, "raw", percent=percent))
        lines.append(
            _draw_line(one, bold, "smooth", TRAIN if len(train) == 1 else "", percent=percent)
        )
        lines.append(_draw_line(one, held_out, "held", HELD_OUT, percent=percent))
        ends = ((train, 0), (bold, -1), (held_out, -1))
        rows.append(
            [
                one.name,
                *(show_value(at[n, 1], percent=percent) if len(at) else "" for at, n in ends),
            ]
        )
        # Outliers of the faint line, beyond the 1st and 99th percentile, may lie outside.
        seen += [
            held_out[:, 1],
            bold[:, 1],
            np.quantile(train[:, 1], (0.01, 0.99)) if len(train) else [],
        ]
    values = np.concatenate(seen)
    return draw_lines(
        lines,
        title=title,
        unit=unit,
        ends=(0.0, max(float(last), 1.0)),
        reach=(float(values.min()), float(values.max())),
        percent=percent,
        legend=[(one.tone, one.name, "") for one, _, _ in series],
        heads=["", "first", "last", *["held-out"] * any(row[3] for row in rows)],
        rows=rows,
        summary=" ".join([f"{title}.", *map(_summarise, rows)]),
    )


def _draw_line(
    one: ChartMetric, points: Points, kind: str, split: str = "", *, percent: bool
) -> Line:
    """Draw points as a line, with a ``split`` as dots, too; long lines by the extremes of ``MOST_POINTS / 2`` parts."""
    if len(points) > MOST_POINTS:
        parts = np.array_split(np.arange(len(points)), MOST_POINTS // 2)
        kept = {part[at(points[part, 1])] for part in parts for at in (np.argmin, np.argmax)} | {
            len(points) - 1
        }
        points = points[sorted(kept)]
    at = points.tolist() if split else ()
    dots = [
        f"{one.name}, {split}, step {step:,.0f}: {show_value(y, percent=percent)}" for step, y in at
    ]
    return Line(name=one.name, x=points[:, 0], y=points[:, 1], tone=one.tone, kind=kind, dots=dots)


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
