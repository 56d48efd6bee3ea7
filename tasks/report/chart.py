"""Lay out a histogram: bins, bars, ticks and what a listener is told; the template draws it as SVG.

Reads and writes nothing. All numbers are in units of the drawing, ``WIDTH`` by ``HEIGHT``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.pages.ticks import Tick, nice_ticks, round_step
from pairwright.tasks.report.tally_values import Tally

WIDTH, HEIGHT = 420, 210
LEFT, RIGHT, TOP, BOTTOM = 40, 10, 12, 26
MOST_BINS, FEWEST_BINS = 24, 9
GAP = 1.5

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Series:
    """Be values under a name; ``tone`` chooses its colour in the style sheet."""

    name: str
    tally: Tally
    tone: str = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Be the numbers behind a picture as a table."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Be one bar, and what it says when pointed at."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Legend:
    """Say what one series is, in words and numbers."""

    name: str
    tone: str
    count: str
    median: str
    middle: str
    """The middle nine tenths: "0.78 to 0.94"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Be a histogram ready to be drawn."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    legend: tuple[Legend, ...]
    summary: str
    """What the picture shows, in a sentence."""
    numbers: Numbers


def draw_histogram(title: str, series: Sequence[Series], *, unit: str, whole: bool = False) -> Chart | None:
    """Lay out the series side by side in each bin; ``whole`` for numbers of things. Nothing to show gives ``None``."""
    shown = [one for one in series if one.tally.total]
    if not shown:
        return None
    ends = [end for one in shown for end in one.tally.values[[0, -1]].tolist()]
    edges, step = find_edges(min(ends), max(ends), whole=whole)
    counts = [one.tally.histogram(edges) for one in shown]
    up = nice_ticks(float(max(count.max() for count in counts)))
    bars = [
        bar
        for number, one in enumerate(shown)
        for bar in _bars(one, counts[number], edges=edges, top=up[-1], slot=(number, len(shown)))
    ]
    legend = tuple(_legend(one, whole=whole) for one in shown)
    return Chart(
        title=title,
        unit=unit,
        bars=tuple(bars),
        across=tuple(_across(edges, step)),
        up=tuple(Tick(_height(value, up[-1]), f"{value:,.0f}") for value in up),
        legend=legend,
        summary=f"{title}. "
        + " ".join(f"{one.name}: {one.count} values, median {one.median}, mostly {one.middle}." for one in legend),
        numbers=_numbers(unit, edges, [one.name for one in shown], counts),
    )


def _numbers(unit: str, edges: Floats, names: Sequence[str], counts: Sequence[NDArray[np.int64]]) -> Numbers:
    """Return the bins from the first to the last that holds something."""
    filled = np.flatnonzero(np.sum(counts, axis=0))
    first, last = int(filled[0]), int(filled[-1]) + 1
    rows = [
        (f"{edges[place]:.4g} to {edges[place + 1]:.4g}", *(f"{one[place]:,}" for one in counts))
        for place in range(first, last)
    ]
    return Numbers(heads=(unit, *names), rows=tuple(rows))


def find_edges(low: float, high: float, *, whole: bool) -> tuple[Floats, float]:
    """Return the edges of bins of a round width that hold all values from the lowest to the highest, and the width."""
    step = round_step((high - low) / MOST_BINS or (1 if whole else 0.01), least=1 if whole else 0.0)
    # Rounded before it is cut off: 0.3 / 0.1 is 2.9999999999999996.
    first = math.floor(round(low / step, 4))
    last = math.floor(round(high / step, 4)) + 1
    around = max(0, FEWEST_BINS - (last - first)) // 2
    first, last = first - min(around, max(first, 0)), last + around  # no number here is below zero
    edges = np.arange(first, last + 1, dtype=np.float64) * step
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)
    return edges, step


def _height(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP), 2)


def _place(value: float, edges: Floats) -> float:
    return LEFT + (value - edges[0]) / (edges[-1] - edges[0]) * (WIDTH - LEFT - RIGHT)


def _bars(one: Series, counts: NDArray[np.int64], *, edges: Floats, top: float, slot: tuple[int, int]) -> list[Bar]:
    number, of = slot
    bars: list[Bar] = []
    for start, stop, count in zip(edges, edges[1:], counts.tolist(), strict=False):
        left, right = _place(start, edges), _place(stop, edges)
        width = max((right - left - GAP) / of, 0.5)
        y = _height(count, top)
        bars.append(
            Bar(
                x=round(left + GAP / 2 + number * width, 2),
                y=y,
                width=round(width, 2),
                height=round(HEIGHT - BOTTOM - y, 2),
                tone=one.tone,
                label=f"{one.name}, {start:.3g} to {stop:.3g}: {count:,}",
            )
        )
    return [bar for bar in bars if bar.height > 0]


def _across(edges: Floats, step: float) -> list[Tick]:
    """Return about five numbers below the bars."""
    every = max(1, round(len(edges) / 5))
    digits = max(0, -math.floor(math.log10(step))) if step < 1 else 0
    return [Tick(round(_place(edge, edges), 2), f"{edge:,.{digits}f}") for edge in edges[::every]]


def _legend(one: Series, *, whole: bool) -> Legend:
    low, middle, high = (one.tally.quantile(share) for share in (0.05, 0.5, 0.95))
    form = ",.0f" if whole else ".2f"
    return Legend(
        name=one.name,
        tone=one.tone,
        count=f"{one.tally.total:,}",
        median=format(middle, form),
        middle=f"{low:{form}} to {high:{form}}",
    )
