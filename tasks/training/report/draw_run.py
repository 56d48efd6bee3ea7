"""Choose what is drawn of a run's metrics: which belong together, what they are called, what their axes hold.

What was logged is drawn faint, smoothed bold, and what was measured on held-out rows dashed with dots.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pairwright.tasks.pages.charts import Chart, Line, draw_lines
from pairwright.tasks.training.report.run_metrics import Metrics, Points, smooth
from pairwright.tasks.training.runs import HELD_OUT, TRAIN

MOST_POINTS = 300
"""Of a line; a longer one is drawn by the lowest and the highest value of so many stretches."""


@dataclass(frozen=True)
class Spec:
    """What one chart shows."""

    title: str
    unit: str
    shows: Sequence[tuple[str, str, str]]
    """Per line: the metric's name, what it is called, its tone."""
    holds: tuple[float, ...] = ()
    """Values that are within the axis up, whatever was logged."""
    percent: bool = False
    exact: bool = False
    """Whether nothing is to be smoothed."""


@dataclass(frozen=True)
class Section:
    """Charts under one heading."""

    title: str
    lead: str
    charts: Sequence[Chart]


def _of_sides(name: str) -> list[tuple[str, str, str]]:
    return [(name, "text", "chosen"), (f"{name}/image", "image", "third")]


LEARNING = (
    Spec("Loss", "what is minimised", [("loss", "loss", "plain"), ("nll", "negative log-likelihood", "third")]),
    Spec("Margin", "reward of the chosen less the rejected", _of_sides("margin"), (0.0,)),
    Spec("Accuracy", "preferences ranked as they should be", _of_sides("accuracy"), (0.0, 1.0), percent=True),
    Spec(
        "Rewards",
        "beta x log-ratio to the reference",
        [
            ("reward/chosen", "chosen", "chosen"),
            ("reward/rejected", "rejected text", "rejected"),
            ("reward/image", "rejected image", "third"),
        ],
        (0.0,),
    ),
    Spec(
        "Log-probabilities",
        "of whole answers",
        [("logp/chosen", "chosen", "chosen"), ("logp/rejected", "rejected", "rejected")],
    ),
    Spec(
        "Adaptive weights",
        "AdaViP, Eq. 13",
        [("weight/text", "text", "rejected"), ("weight/image", "image", "third")],
        (0.0, 1.0),
    ),
)
RETRIEVER = (
    Spec(
        "Entropy",
        "of its choice, next to a uniform one",
        [("retriever/entropy share", "entropy", "plain")],
        (0.0, 1.0),
        percent=True,
    ),
    Spec(
        "Effective candidates",
        "exp of the entropy",
        [("retriever/effective", "effective", "plain"), ("retriever/candidates", "drawn", "third")],
        (0.0,),
    ),
    Spec("Reward", "of the retriever", [("retriever/reward", "reward", "plain")]),
    Spec("Loss", "of the retriever", [("retriever/loss", "loss", "plain")]),
    Spec(
        "Doubtful negatives",
        "share of its choices",
        [
            ("retriever/true share", "true of their pair, where that is known", "rejected"),
            ("retriever/most common share", "the most common text", "third"),
        ],
        (0.0,),
        percent=True,
    ),
)
SPEED = (
    Spec("Learning rate", "", [("learning_rate", "rate", "plain")], (0.0,), exact=True),
    Spec("Gradient norm", "before it is cut", [("grad_norm", "norm", "plain")], (0.0,)),
    Spec("Rows per second", "", [("rows per second", "rows", "plain")], (0.0,)),
    Spec("Tokens per second", "", [("tokens per second", "tokens", "plain")], (0.0,)),
    Spec("Memory", "GiB, the highest", [("memory", "GiB", "plain")], (0.0,)),
)
FACTS = ("retriever/scale", "retriever/tau", "retriever/entropy")
"""Not drawn: settings that are logged, and what another chart shows in other units."""


def draw_run(metrics: Metrics) -> list[Section]:
    """Return the charts of what there is; metrics that no chart knows get one each."""
    known = {name for spec in (*LEARNING, *RETRIEVER, *SPEED) for name, _, _ in spec.shows}
    rest = sorted({name for _, name in metrics.points} - known - set(FACTS))
    further = [Spec(name, "", [(name, name, "plain")]) for name in rest]
    chooses = "It chooses negatives for each pair and is rewarded where the policy finds them likely."
    sections = (
        ("Learning", "", LEARNING),
        ("The retriever", chooses, RETRIEVER),
        ("Steps and speed", "", SPEED),
        ("Further metrics", "", further),
    )
    drawn = [
        Section(title, lead, [chart for spec in specs if (chart := _draw(metrics, spec))])
        for title, lead, specs in sections
    ]
    return [section for section in drawn if section.charts]


@dataclass(frozen=True)
class Series:
    """One metric of a chart: what was logged, its course, and what was measured on held-out rows; all finite."""

    name: str
    tone: str
    train: Points
    bold: Points
    held_out: Points


def _draw(metrics: Metrics, spec: Spec) -> Chart | None:
    series = _series(metrics, spec)
    if not series:
        return None
    rows = [[one.name, *_ends(one, percent=spec.percent)] for one in series]
    return draw_lines(
        [line for one in series for line in _lines(one, percent=spec.percent)],
        title=spec.title,
        unit=spec.unit,
        ends=(0.0, max(float(metrics.last), 1.0)),
        reach=_reach(spec, series),
        percent=spec.percent,
        legend=[(one.tone, one.name, "") for one in series],
        heads=["", "first", "last", *["held-out"] * any(row[3] for row in rows)],
        rows=rows,
        summary=" ".join([f"{spec.title}.", *map(_say, rows)]),
    )


def _series(metrics: Metrics, spec: Spec) -> list[Series]:
    """Return a chart's series without those that lie exactly on the first one, as SFT's likelihood on its loss."""
    found: list[Series] = []
    for name, words, tone in spec.shows:
        train, held_out = metrics.of(name).finite(), metrics.of(name, HELD_OUT).finite()
        one = Series(words, tone, train, train if spec.exact else smooth(train), held_out)
        same = found and all(
            np.array_equal(a.values, b.values) for a, b in ((train, found[0].train), (held_out, found[0].held_out))
        )
        if (len(train) or len(held_out)) and not same:
            found.append(one)
    return found


def _lines(one: Series, *, percent: bool) -> Iterator[Line]:
    """Yield the lines of a metric; held-out values are dots, too, and so is a line of one point."""
    if one.bold is not one.train:
        yield _line(one, one.train, "raw")
    single = _labels(one, one.train, TRAIN, percent=percent) if len(one.train) == 1 else ()
    yield _line(one, one.bold, "smooth", single)
    yield _line(one, one.held_out, "held", _labels(one, thin(one.held_out), HELD_OUT, percent=percent))


def _line(one: Series, points: Points, kind: str, dots: Sequence[str] = ()) -> Line:
    kept = thin(points)
    return Line(name=one.name, x=kept.steps, y=kept.values, tone=one.tone, kind=kind, dots=dots)


def _labels(one: Series, points: Points, split: str, *, percent: bool) -> list[str]:
    pairs = zip(points.steps.tolist(), points.values.tolist(), strict=True)
    return [f"{one.name}, {split}, step {step:,.0f}: {show_value(value, percent=percent)}" for step, value in pairs]


def thin(points: Points) -> Points:
    """Return the lowest and the highest point of each of ``MOST_POINTS / 2`` stretches; few points stay as they are."""
    if len(points) <= MOST_POINTS:
        return points
    parts = np.array_split(np.arange(len(points)), MOST_POINTS // 2)
    kept = {part[at(points.values[part])] for part in parts for at in (np.argmin, np.argmax)} | {len(points) - 1}
    return points.at(sorted(kept))


def _reach(spec: Spec, series: Sequence[Series]) -> tuple[float, float]:
    """Return the range to be shown: of single wild values of the faint line, the wildest hundredth is left outside."""
    parts = [np.array(spec.holds, np.float64)]
    for one in series:
        parts += [one.held_out.values, one.bold.values]
        if len(one.train):
            parts.append(np.quantile(one.train.values, (0.01, 0.99)))
    values = np.concatenate(parts)
    return float(values.min()), float(values.max())


def show_value(value: float, *, percent: bool = False) -> str:
    """Return a value in three figures."""
    if percent:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _ends(one: Series, *, percent: bool) -> Iterator[str]:
    for points, place in ((one.train, 0), (one.bold, -1), (one.held_out, -1)):
        yield show_value(float(points.values[place]), percent=percent) if len(points) else ""


def _say(row: Sequence[str]) -> str:
    name, first, last, held_out = row
    parts = [f"from {first} to {last} in training"] if first else []
    parts += [f"{held_out} on held-out rows"] if held_out else []
    return f"{name}: {', '.join(parts)}."
