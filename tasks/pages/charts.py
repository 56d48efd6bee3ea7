"""Lay out charts for ``chart.html.j2``: ticks, marks, a legend, the numbers behind them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

WIDTH = 420
HEIGHT = 210
LEFT = 50
RIGHT = 12
TOP = 12
BOTTOM = 26
MOST_BINS = 24
FEWEST_BINS = 9
GAP = 1.5
LEAST = 1e-300  # a smaller range counts as a point: floats near zero have no room for ticks
Floats = NDArray[np.float64]
Points = Sequence[tuple[float, float]]


class ValueCounts(NamedTuple):
    """Distinct values in ascending order, with their counts."""

    values: Floats
    counts: NDArray[np.int64]

    def quantile(self, share: float) -> float:
        """Return a quantile; there must be values."""
        return float(
            np.quantile(
                self.values,
                share,
                weights=self.counts,
                method="inverted_cdf",
            )
        )

    def describe_range(self, form: str) -> str:
        """Return the median and the range of 90 % of the values in words."""
        low = format(self.quantile(0.05), form)
        median = format(self.quantile(0.5), form)
        high = format(self.quantile(0.95), form)
        return f"median {median}, 90 % from {low} to {high} ({self.counts.sum():,})"


Series = tuple[str, str, ValueCounts]
"""Name, tone and values of one series of a histogram."""


class Proportion(NamedTuple):
    """Proportion of a sample; without rows it has no value."""

    hits: float
    of: int

    @property
    def value(self) -> float:
        """Return hits / of."""
        return self.hits / self.of

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Return the confidence interval (95 % by default), after Wilson (1927).

        It is valid for small numbers, and for shares near 0 and 1.
        """
        middle = (self.hits + z**2 / 2) / (self.of + z**2)
        variance = self.hits * (1 - self.value) + z**2 / 4
        half = z * variance**0.5 / (self.of + z**2)
        low = max(0.0, middle - half)
        high = min(1.0, middle + half)
        return low, high


@dataclass(frozen=True, kw_only=True)
class Line:
    """Finite values ``y`` at ``x``, both ``(n,)``.

    Each is a dot with the label in ``dots``, if there are any.
    """

    name: str
    x: Floats
    y: Floats
    tone: str
    kind: str = ""
    dots: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Tick, bar, stroke or dot: position, CSS class and label."""

    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    look: str = ""
    path: str = ""
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Chart, laid out."""

    title: str
    unit: str
    across: Sequence[Mark]
    up: Sequence[Mark]
    bars: Sequence[Mark] = ()
    strokes: Sequence[Mark] = ()
    dots: Sequence[Mark] = ()
    legend: Sequence[tuple[str, str, str]] = ()  # tone, name and summary of each series
    summary: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]  # table of the numbers behind the chart


@dataclass(frozen=True)
class Axes:
    """Ranges of the axes."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: Any) -> Any:
        """Return the distance from the left."""
        share = (value - self.left) / (self.right - self.left)
        return np.round(LEFT + share * (WIDTH - LEFT - RIGHT), 2)

    def y(self, value: Any) -> Any:
        """Return the distance from the top."""
        inside = np.clip(value, self.low, self.high)
        share = (inside - self.low) / (self.high - self.low)
        return np.round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 2)


def draw_histogram(
    title: str,
    series: Sequence[Series],
    *,
    unit: str,
    whole: bool = False,
) -> Chart | None:
    """Lay out series side by side; ``whole``: integers. ``None``: no values."""
    series = [entry for entry in series if len(entry[2].values)]
    if not series:
        return None
    edges, step = _find_common_edges(series, whole=whole)
    counts = [_count_bins(entry[2], edges) for entry in series]
    up = ticks_between(0, _highest(counts), whole=True)
    axes = Axes(edges[0], edges[-1], 0, up[-1])
    legend = _make_legend(series, ",.0f" if whole else ".2f")
    summary = " ".join(f"{name}: {text}." for _, name, text in legend)
    return Chart(
        title=title,
        unit=unit,
        bars=list(_bars(series, counts, edges, axes)),
        across=_label_edges(edges, step, axes),
        up=_label_counts(up, axes),
        legend=legend,
        summary=f"{title}. {summary}",
        heads=(unit, *(name for _, name, _ in legend)),
        rows=_list_bins(edges, counts),
    )


def _find_common_edges(series: Sequence[Series], *, whole: bool) -> tuple[Floats, float]:
    tallies = [tally for _, _, tally in series]
    low = min(float(tally.values[0]) for tally in tallies)
    high = max(float(tally.values[-1]) for tally in tallies)
    return find_edges(low, high, whole=whole)


def _highest(counts: Sequence[NDArray[np.int64]]) -> int:
    return max(int(count.max()) for count in counts)


def _make_legend(series: Sequence[Series], form: str) -> list[tuple[str, str, str]]:
    """Return tone, name and summary of each series."""
    return [(tone, name, tally.describe_range(form)) for name, tone, tally in series]


def _count_bins(tally: ValueCounts, edges: Floats) -> NDArray[np.int64]:
    counts, _ = np.histogram(tally.values, edges, weights=tally.counts)
    return counts.astype(int)


def _label_edges(
    edges: Floats,
    step: float,
    axes: Axes,
) -> list[Mark]:
    """Return about five labelled edges of bins."""
    every = max(1, round(len(edges) / 5))
    digits = 0
    if step < 1:
        digits = max(0, -math.floor(math.log10(step)))
    return [Mark(x=axes.x(edge), label=f"{edge:,.{digits}f}") for edge in edges[::every]]


def _label_counts(ticks: Sequence[float], axes: Axes) -> list[Mark]:
    return [Mark(y=axes.y(count), label=f"{count:,.0f}") for count in ticks]


def _list_bins(edges: Floats, counts: Sequence[NDArray[np.int64]]) -> list[tuple[str, ...]]:
    """Return the range and the counts of each bin, from the first to the last filled one."""
    filled = np.flatnonzero(np.sum(counts, axis=0))
    rows: list[tuple[str, ...]] = []
    for index in range(filled[0], filled[-1] + 1):
        bounds = f"{edges[index]:.4g} to {edges[index + 1]:.4g}"
        rows.append((bounds, *(f"{count[index]:,}" for count in counts)))
    return rows


def find_edges(
    low: float,
    high: float,
    *,
    whole: bool,
) -> tuple[Floats, float]:
    """Return the edges of bins of a round width over all values, and the width."""
    width = (high - low) / MOST_BINS
    if not width:
        width = 1 if whole else 0.01
    step = round_step(width, least=1 if whole else 0.0)
    first = math.floor(round(low / step, 4))  # 0.3 / 0.1 < 3
    last = math.floor(round(high / step, 4)) + 1
    margin = max(0, FEWEST_BINS - (last - first)) // 2
    first -= min(margin, max(first, 0))  # no number here is below zero
    last += margin
    edges = np.arange(first, last + 1, dtype=np.float64) * step
    edges[0] = min(edges[0], low)
    edges[-1] = max(edges[-1], high)
    return edges, step


def _bars(
    series: Sequence[Series],
    counts: Sequence[NDArray[np.int64]],
    edges: Floats,
    axes: Axes,
) -> Iterator[Mark]:
    for number, (name, tone, _) in enumerate(series):
        for start, stop, count in zip(edges, edges[1:], counts[number].tolist(), strict=False):
            if not count:
                continue
            left = axes.x(start)
            y = axes.y(count)
            width = round(max((axes.x(stop) - left - GAP) / len(series), 0.5), 2)
            yield Mark(
                x=round(left + GAP / 2 + number * width, 2),
                y=y,
                width=width,
                height=HEIGHT - BOTTOM - y,
                look=tone,
                label=f"{name}, {start:.3g} to {stop:.3g}: {count:,}",
            )


def draw_lines(
    lines: Sequence[Line],
    *,
    ends: tuple[float, float],
    reach: tuple[float, float],
    percent: bool = False,
    **content: Any,
) -> Chart:
    """Lay out lines between the ends of the x axis; the y axis covers at least ``reach``.

    ``content`` are further fields of the chart.
    """
    up = ticks_between(*reach)
    axes = Axes(*ends, up[0], up[-1])
    across = [value for value in ticks_between(*ends) if ends[0] <= value <= ends[1]]
    strokes: list[Mark] = []
    dots: list[Mark] = []
    for line in lines:
        points = list(zip(axes.x(line.x), axes.y(line.y), strict=True))
        if len(points) > 1:
            strokes.append(_stroke(line, points))
        dots += _dots(line, points)
    return Chart(
        strokes=strokes,
        dots=dots,
        across=[Mark(x=axes.x(value), label=_label(value, across)) for value in across],
        up=[Mark(y=axes.y(value), label=_label(value, up, percent=percent)) for value in up],
        **content,
    )


def _stroke(line: Line, points: Points) -> Mark:
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
    return Mark(look=f"{line.kind} {line.tone}", label=line.name, path=path)


def _dots(line: Line, points: Points) -> Iterator[Mark]:
    for (x, y), label in zip(points, line.dots, strict=bool(line.dots)):
        yield Mark(x=x, y=y, look=line.tone, label=label)


def _label(
    value: float,
    ticks: Sequence[float],
    *,
    percent: bool = False,
) -> str:
    scale = 100 if percent else 1
    unit = "%" if percent else ""
    step = (ticks[-1] - ticks[0]) / max(len(ticks) - 1, 1) * scale
    digits = max(0, -math.floor(math.log10(step or 1) + 1e-9))
    if digits > 3 and not percent:
        return f"{value:.2g}"
    return f"{value * scale:,.{digits}f}{unit}"


def round_step(least_width: float, *, least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... times a power of ten that is not below the width."""
    power = 10.0 ** math.floor(math.log10(least_width))
    steps = [power * factor for factor in (1, 2, 5, 10)]
    wide_enough = next(step for step in steps if step >= least_width * (1 - 1e-9))
    return max(wide_enough, least)


def ticks_between(
    low: float,
    high: float,
    *,
    whole: bool = False,
) -> list[float]:
    """Return at least two round numbers from at most ``low`` to at least ``high``."""
    distinct = max(1e-9 * max(abs(low), abs(high)), LEAST)
    if high - low <= distinct:  # closer, and a float cannot tell the ticks apart
        room = abs(low) / 2 if abs(low) > LEAST else 1.0
        low, high = low - room, high + room
    step = round_step((high - low) / 4, least=1.0 if whole else 0.0)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]
