"""Lay out the histogram of one embedder's similarities with the present thresholds marked; the template draws it.

Reads and writes nothing. All numbers are in units of the drawing, ``WIDTH`` by ``HEIGHT``.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pairwright.tasks.pages.ticks import Tick, nice_ticks, round_step
from pairwright.tasks.report.calibrate_bins import Band, Spread, show_number
from pairwright.tasks.report.chart import Bar

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 84, 22, 26, 24
MOST_BARS = 60
GAP = 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Be a threshold on the axis; ``anchor`` says on which side its word stands."""

    place: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedChart:
    """Be a histogram ready to be drawn."""

    bars: tuple[Bar, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    summary: str
    """What the picture shows, in a sentence."""


def draw_spread(name: str, spread: Spread, band: Band) -> MarkedChart:
    """Lay out the similarities of one embedder; bars outside the band have another tone."""
    filled = np.flatnonzero(spread.counts)
    low, high = float(spread.edges[filled[0]]), min(float(spread.edges[filled[-1] + 1]), 1.0)
    low, high = min(low, band.low), max(high, band.high)
    step = round_step(max(high - low, 0.01) / MOST_BARS, least=0.001)
    edges = np.round(np.arange(np.floor(round(low / step, 4)), np.ceil(round(high / step, 4)) + 1) * step, 4)
    counts = [spread.count(start, _end(stop)) for start, stop in pairwise(edges.tolist())]
    up = nice_ticks(float(max(counts)))
    scale = (float(edges[0]), float(edges[-1]))
    return MarkedChart(
        bars=tuple(_bars(edges.tolist(), counts, top=up[-1], band=band)),
        across=tuple(_across(edges.tolist(), step)),
        up=tuple(Tick(_height(value, up[-1]), f"{value:,.0f}") for value in up),
        marks=tuple(_marks(band, scale)),
        summary=f"{name}: {spread.total:,} candidates, median similarity {spread.quantile(0.5):.2f}; "
        f"{share_in_band(spread, band):.0%} are in the present band.",
    )


def share_in_band(spread: Spread, band: Band) -> float:
    """Return the share of the candidates that both thresholds let through."""
    return spread.count(band.low, band.end) / max(spread.total, 1)


def _end(stop: float) -> float:
    """Return the upper end of a bar; the last one holds 1 itself."""
    return 2.0 if stop >= 1 else stop


def _height(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP), 2)


def _place(value: float, scale: tuple[float, float]) -> float:
    return round(LEFT + (value - scale[0]) / (scale[1] - scale[0]) * (WIDTH - LEFT - RIGHT), 2)


def _bars(edges: list[float], counts: list[int], *, top: float, band: Band) -> list[Bar]:
    bars: list[Bar] = []
    scale = (edges[0], edges[-1])
    for start, stop, count in zip(edges, edges[1:], counts, strict=False):
        if not count:
            continue
        x, y = _place(start, scale), _height(count, top)
        inside = band.low <= (start + stop) / 2 <= band.high
        bars.append(
            Bar(
                x=round(x + GAP / 2, 2),
                y=y,
                width=round(max(_place(stop, scale) - x - GAP, 0.5), 2),
                height=round(HEIGHT - BOTTOM - y, 2),
                tone="plain" if inside else "faint",
                label=f"{show_number(start)} to {show_number(stop)}: {count:,}",
            )
        )
    return bars


def _across(edges: list[float], step: float) -> list[Tick]:
    """Return numbers at round places."""
    wide = round_step((edges[-1] - edges[0]) / 8, least=step)
    first, last = int(np.ceil(round(edges[0] / wide, 4))), int(np.floor(round(edges[-1] / wide, 4)))
    digits = 2 if wide >= 0.01 else 3
    scale = (edges[0], edges[-1])
    return [Tick(_place(n * wide, scale), f"{n * wide:.{digits}f}") for n in range(first, last + 1)]


def _marks(band: Band, scale: tuple[float, float]) -> list[Mark]:
    """Return both thresholds; their words stand outside the band, unless that is outside the picture."""
    room = 60
    low, high = _place(band.low, scale), _place(band.high, scale)
    return [
        Mark(low, f"min {show_number(band.low)}", "end" if low > LEFT + room else "start"),
        Mark(high, f"max {show_number(band.high)}", "start" if high < WIDTH - RIGHT - room else "end"),
    ]
