"""Lay out charts for ``chart.html.j2``: ticks, marks, a legend, the numbers behind them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 26
MOST_BINS, FEWEST_BINS, GAP = 24, 9, 1.5
LEAST = 1e-300  # a smaller range counts as a point: floats near zero have no room for ticks
Floats = NDArray[np.float64]


class ValueCounts(NamedTuple):
    """Distinct values in ascending order, with their counts."""

    values: Floats
    counts: NDArray[np.int64]

    def quantile(self, share: float) -> float:
        """Return a quantile; there must be values."""
        return float(np.quantile(self.values, share, weights=self.counts, method="inverted_cdf"))

    def say(self, form: str) -> str:
        """Return the median and the range of 90 % of the values in words."""
        low, middle, high = (format(self.quantile(share), form) for share in (0.05, 0.5, 0.95))
        return f"median {middle}, 90 % from {low} to {high} ({self.counts.sum():,})"


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
        half = z * (self.hits * (1 - self.value) + z**2 / 4) ** 0.5 / (self.of + z**2)
        return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Finite values ``y`` at ``x``, both ``(n,)``; each is a dot with the label in ``dots``, if any."""

    name: str
    x: Floats
    y: Floats
    tone: str
    kind: str = ""
    dots: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Tick, bar, stroke or dot: its place, CSS class and label."""

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
        return np.round(
            LEFT + (value - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT), 2
        )

    def y(self, value: Any) -> Any:
        """Return the distance from the top."""
        share = (np.clip(value, self.low, self.high) - self.low) / (self.high - self.low)
        return np.round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 2)


def draw_histogram(
    title: str, series: Sequence[tuple[str, str, ValueCounts]], *, unit: str, whole: bool = False
) -> Chart | None:
    """Lay out series (name, tone, values) side by side; ``whole``: integers. ``None``: no values."""
    shown = [one for one in series if len(one[2].values)]
    if not shown:
        return None
    ends = np.array([tally.values[[0, -1]] for _, _, tally in shown])
    edges, step = find_edges(float(ends.min()), float(ends.max()), whole=whole)
    counts = [
        np.histogram(tally.values, edges, weights=tally.counts)[0].astype(int)
        for _, _, tally in shown
    ]
    up = ticks_between(0, int(max(count.max() for count in counts)), whole=True)
    axes = Axes(edges[0], edges[-1], 0, up[-1])
    every, digits = (
        max(1, round(len(edges) / 5)),
        max(0, -math.floor(math.log10(step))) if step < 1 else 0,
    )
    words = [tally.say(",.0f" if whole else ".2f") for _, _, tally in shown]
    filled = np.flatnonzero(np.sum(counts, axis=0))
    return Chart(
        title=title,
        unit=unit,
        bars=list(_bars(shown, counts, edges, axes)),
        across=[Mark(x=axes.x(edge), label=f"{edge:,.{digits}f}") for edge in edges[::every]],
        up=[Mark(y=axes.y(value), label=f"{value:,.0f}") for value in up],
        legend=[(tone, name, said) for (name, tone, _), said in zip(shown, words, strict=True)],
        summary=f"{title}. "
        + " ".join(f"{one[0]}: {said}." for one, said in zip(shown, words, strict=True)),
        heads=(unit, *(name for name, _, _ in shown)),
        rows=[
            (
                f"{edges[place]:.4g} to {edges[place + 1]:.4g}",
                *(f"{one[place]:,}" for one in counts),
            )
            for place in range(filled[0], filled[-1] + 1)
        ],
    )


def find_edges(low: float, high: float, *, whole: bool) -> tuple[Floats, float]:
    """Return the edges of bins of a round width over all values, and the width."""
    step = round_step((high - low) / MOST_BINS or (1 if whole else 0.01), least=1 if whole else 0.0)
    first, last = (
        math.floor(round(low / step, 4)),
        math.floor(round(high / step, 4)) + 1,
    )  # 0.3 / 0.1 < 3
    around = max(0, FEWEST_BINS - (last - first)) // 2
    first, last = first - min(around, max(first, 0)), last + around  # no number here is below zero
    edges = np.arange(first, last + 1, dtype=np.float64) * step
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return edges, step


def _bars(shown: Sequence[Any], counts: Sequence[Any], edges: Floats, axes: Axes) -> Iterator[Mark]:
    for number, (name, tone, _) in enumerate(shown):
        for start, stop, count in zip(edges, edges[1:], counts[number].tolist(), strict=False):
            left, y = axes.x(start), axes.y(count)
            width = round(max((axes.x(stop) - left - GAP) / len(shown), 0.5), 2)
            x, label = (
                round(left + GAP / 2 + number * width, 2),
                f"{name}, {start:.3g} to {stop:.3g}: {count:,}",
            )
            if count:
                yield Mark(
                    x=x, y=y, width=width, height=HEIGHT - BOTTOM - y, look=tone, label=label
                )


def draw_lines(
    lines: Sequence[Line], *, ends: tuple[float, float], reach: tuple[float, float], percent: bool = False,
    **told: Any,
) -> Chart:  # fmt: skip
    """Lay out lines between the ends of the x axis; ``reach`` is the minimum range of the y
    axis.
    """
    up = ticks_between(*reach)
    axes = Axes(*ends, up[0], up[-1])
    across = [at for at in ticks_between(*ends) if ends[0] <= at <= ends[1]]
    drawn = [(line, list(zip(axes.x(line.x), axes.y(line.y), strict=True))) for line in lines]
    return Chart(
        strokes=[
            Mark(
                look=f"{line.kind} {line.tone}",
                label=line.name,
                path="M" + "L".join(f"{x:g} {y:g}" for x, y in at),
            )
            for line, at in drawn
            if len(at) > 1
        ],
        dots=[
            Mark(x=x, y=y, look=line.tone, label=label)
            for line, at in drawn
            for (x, y), label in zip(at, line.dots, strict=bool(line.dots))
        ],
        across=[Mark(x=axes.x(at), label=_label(at, across)) for at in across],
        up=[Mark(y=axes.y(at), label=_label(at, up, percent=percent)) for at in up],
        **told,
    )


def _label(value: float, ticks: Sequence[float], *, percent: bool = False) -> str:
    scale, unit = (100, "%") if percent else (1, "")
    digits = max(
        0,
        -math.floor(
            math.log10((ticks[-1] - ticks[0]) / max(len(ticks) - 1, 1) * scale or 1) + 1e-9
        ),
    )
    return f"{value:.2g}" if digits > 3 and not percent else f"{value * scale:,.{digits}f}{unit}"


def round_step(least_width: float, *, least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... times a power of ten that is not below the width."""
    power = 10.0 ** math.floor(math.log10(least_width))
    return max(
        next(
            power * factor for factor in (1, 2, 5, 10) if power * factor >= least_width * (1 - 1e-9)
        ),
        least,
    )


def ticks_between(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return at least two round numbers from at most ``low`` to at least ``high``."""
    if high - low <= max(
        1e-9 * max(abs(low), abs(high)), LEAST
    ):  # closer, and a float cannot tell the ticks apart
        room = abs(low) / 2 if abs(low) > LEAST else 1.0
        low, high = low - room, high + room
    step = round_step((high - low) / 4, least=1.0 if whole else 0.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, last + 1)]
