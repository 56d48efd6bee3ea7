"""Lay out a line chart: what was logged, faint; smoothed, bold; what was measured on held-out rows, dashed with dots.

Reads and writes nothing. Numbers of the drawing are in its own units, ``WIDTH`` by ``HEIGHT``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.pages.ticks import Tick, ticks_between

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 26
MOST_POINTS = 300
"""Of a line; a longer one is drawn by the lowest and the highest value of so many stretches."""
SMOOTHED_OVER = 20
"""The smoothed line looks back over the points' number divided by this."""

MOST = 1e15
"""Larger values are as good as infinite: they would hide all others."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Points:
    """Be values at steps, both ``(n,)``, in the order of the steps; a value may be NaN or infinite."""

    steps: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def finite(self) -> "Points":
        """Return those that can be drawn."""
        keep = np.abs(self.values) < MOST
        return Points(self.steps[keep], self.values[keep])


@dataclass(frozen=True, kw_only=True)
class Series:
    """Be one metric; ``tone`` chooses its colour in the style sheet."""

    name: str
    tone: str
    train: Points
    held_out: Points
    exact: bool = False
    """Whether it is no measurement: nothing is smoothed."""

    @property
    def bold(self) -> Points:
        """Return what is drawn bold of the training: the course, not each value."""
        return self.train if self.exact else smooth(self.train)

    def finite(self) -> "Series":
        """Return what can be drawn."""
        return replace(self, train=self.train.finite(), held_out=self.held_out.finite())


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Say what a chart is about, and what its axes hold in any case."""

    title: str
    unit: str
    last: float
    """The last step of the run: all of its charts end there."""
    holds: tuple[float, ...] = ()
    """Values that are within the vertical axis, whatever was logged."""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Stroke:
    """Be one line of the drawing: an SVG path."""

    path: str
    tone: str
    kind: str
    """"raw", "smooth" or "held"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """Be one measured value, and what it says when pointed at."""

    x: float
    y: float
    tone: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """Say what one series is, in words and numbers; empty where nothing is known."""

    name: str
    tone: str
    first: str
    last: str
    """Smoothed."""
    held_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Be a chart ready to be drawn."""

    title: str
    unit: str
    strokes: tuple[Stroke, ...]
    dots: tuple[Dot, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    legend: tuple[Legend, ...]
    summary: str
    """What the picture shows, in sentences."""


@dataclass(frozen=True, slots=True)
class _Axes:
    last: float
    low: float
    high: float

    def places(self, points: Points) -> tuple[Floats, Floats]:
        x = LEFT + points.steps / self.last * (WIDTH - LEFT - RIGHT)
        inside = np.clip(points.values, self.low, self.high)
        y = HEIGHT - BOTTOM - (inside - self.low) / (self.high - self.low) * (HEIGHT - BOTTOM - TOP)
        return x.round(1), y.round(1)


def draw_lines(frame: Frame, series: Sequence[Series]) -> LineChart | None:
    """Lay out the series over the steps; nothing that can be drawn gives ``None``."""
    shown = [one.finite() for one in series]
    shown = [one for one in shown if len(one.train) or len(one.held_out)]
    if not shown:
        return None
    up = ticks_between(*_reach(frame, shown))
    axes = _Axes(max(frame.last, 1.0), up[0], up[-1])
    legend = tuple(_legend(one, percent=frame.percent) for one in shown)
    return LineChart(
        title=frame.title,
        unit=frame.unit,
        strokes=tuple(stroke for one in shown for stroke in _strokes(one, axes)),
        dots=tuple(dot for one in shown for dot in _dots(one, axes, percent=frame.percent)),
        across=_across(axes),
        up=_up(up, axes, percent=frame.percent),
        legend=legend,
        summary=" ".join([f"{frame.title}.", *map(_in_words, legend)]),
    )


def smooth(points: Points) -> Points:
    """Return exponential means that look back over a part of the points, unbiased at their start; few stay as are."""
    window = len(points) / SMOOTHED_OVER
    if window <= 1:
        return points
    keep, mean, means = 1 - 1 / window, 0.0, np.empty(len(points))
    for number, value in enumerate(points.values.tolist()):
        mean = keep * mean + (1 - keep) * value
        means[number] = mean / (1 - keep ** (number + 1))
    return Points(points.steps, means)


def thin(points: Points) -> Points:
    """Return the lowest and the highest point of each of ``MOST_POINTS / 2`` stretches; few points stay as they are."""
    if len(points) <= MOST_POINTS:
        return points
    parts = np.array_split(np.arange(len(points)), MOST_POINTS // 2)
    kept = sorted(
        {part[at(points.values[part])] for part in parts for at in (np.argmin, np.argmax)} | {len(points) - 1}
    )
    return Points(points.steps[kept], points.values[kept])


def show_value(value: float, *, percent: bool = False) -> str:
    """Return a value in three figures."""
    if percent:
        return f"{value:.1%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _reach(frame: Frame, series: Sequence[Series]) -> tuple[float, float]:
    """Return the range to be shown: of single wild values of the faint line, the wildest hundredth is left outside."""
    parts = [np.array(frame.holds, np.float64)]
    for one in series:
        parts += [one.held_out.values, one.bold.values]
        if len(one.train):
            parts.append(np.quantile(one.train.values, (0.01, 0.99)))
    values = np.concatenate(parts)
    return float(values.min()), float(values.max())


def _strokes(one: Series, axes: _Axes) -> list[Stroke]:
    bold = one.bold
    lines = [(bold, "smooth"), (one.held_out, "held")]
    if bold is not one.train:
        lines.insert(0, (one.train, "raw"))
    return [Stroke(_path(points, axes), one.tone, kind) for points, kind in lines if len(points) > 1]


def _path(points: Points, axes: _Axes) -> str:
    x, y = axes.places(thin(points))
    return "M" + "L".join(f"{across:g} {down:g}" for across, down in zip(x.tolist(), y.tolist(), strict=True))


def _dots(one: Series, axes: _Axes, *, percent: bool) -> list[Dot]:
    """Return a dot per held-out value; a line of one point is a dot, too."""
    found: list[Dot] = []
    for points, split in ((one.held_out, "held-out"), (one.train, "train")):
        if split == "train" and len(points) != 1:
            continue
        shown = thin(points)
        x, y = axes.places(shown)
        for step, value, across, down in zip(*(a.tolist() for a in (shown.steps, shown.values, x, y)), strict=True):
            label = f"{one.name}, {split}, step {step:,.0f}: {show_value(value, percent=percent)}"
            found.append(Dot(x=across, y=down, tone=one.tone, label=label))
    return found


def _across(axes: _Axes) -> tuple[Tick, ...]:
    steps = np.array([step for step in ticks_between(0, axes.last) if step <= axes.last and step == int(step)])
    x, _ = axes.places(Points(steps, np.full(len(steps), axes.low)))
    return tuple(Tick(place, f"{step:,.0f}") for place, step in zip(x.tolist(), steps.tolist(), strict=True))


def _up(values: Sequence[float], axes: _Axes, *, percent: bool) -> tuple[Tick, ...]:
    _, y = axes.places(Points(np.zeros(len(values)), np.array(values)))
    labels = _percents(values) if percent else _numbers(values)
    return tuple(Tick(place, label) for place, label in zip(y.tolist(), labels, strict=True))


def _percents(values: Sequence[float]) -> list[str]:
    digits = max(0, -math.floor(math.log10((values[1] - values[0]) * 100) + 1e-9))
    return [f"{value:.{digits}%}" for value in values]


def _numbers(values: Sequence[float]) -> list[str]:
    digits = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    return [f"{value:.2g}" if digits > 3 else f"{value:,.{digits}f}" for value in values]


def _legend(one: Series, *, percent: bool) -> Legend:
    def end(points: Points, place: int) -> str:
        return show_value(float(points.values[place]), percent=percent) if len(points) else ""

    return Legend(
        name=one.name,
        tone=one.tone,
        first=end(one.train, 0),
        last=end(one.bold, -1),
        held_out=end(one.held_out, -1),
    )


def _in_words(one: Legend) -> str:
    parts = [f"from {one.first} to {one.last} in training"] if one.first else []
    parts += [f"{one.held_out} on held-out rows"] if one.held_out else []
    return f"{one.name}: {', '.join(parts)}."
