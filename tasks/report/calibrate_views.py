"""What the calibration page shows: one frozen view per thing on it, every path, number and word ready."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairwright.tasks.report.calibrate_bins import Band, show_number
from pairwright.tasks.report.calibrate_chart import MarkedChart
from pairwright.tasks.report.calibrate_yield import Grid, Yield, Yields
from pairwright.tasks.report.write_images import Picture

LEVELS = 9
"""Shades of a yield table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideView:
    """Be one image of a case."""

    picture: Picture
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """Be one sampled pair to be judged: the anchor, then its neighbour."""

    pair: str
    """Key of the pair, the same in every bin that shows it."""
    sides: tuple[SideView, SideView]
    similarities: tuple[tuple[str, str], ...]
    """Embedder and number in words: "0.812", or "below 0.790" where it is not among the nearest."""
    paired: bool
    """Whether the dataset has it as a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BinView:
    """Be one bin with its sampled pairs."""

    id: str
    low: str
    high: str
    side: str
    count: int
    cases: tuple[CaseView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetView:
    """Be all that is shown of one embedder."""

    name: str
    chart: MarkedChart
    in_band: float
    total: int
    bins: tuple[BinView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """Be what one pair of thresholds leaves."""

    anchors: int
    candidates: int
    level: int
    """Shade by the share of anchors, 0 to ``LEVELS``."""
    now: bool
    """Whether these are the present thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldView:
    """Be the table of one embedder, or of all together."""

    name: str
    highs: tuple[tuple[str, bool], ...]
    """Upper thresholds, and which one is the present."""
    rows: tuple[tuple[str, bool, tuple[CellView | None, ...]], ...]
    """Lower threshold, whether it is the present one, and a cell per upper one; ``None`` where the band is empty."""
    now: CellView | None
    """The present cell."""


def view_yields(yields: Yields, grid: Grid, band: Band, names: Sequence[str]) -> list[YieldView]:
    """Return the table of all embedders together, then those of each; of one embedder alone only the first."""
    each = list(zip(names, yields.per_embedder, strict=True)) if len(names) > 1 else []
    everything = [("all encoders" if each else names[0], yields.together), *each]
    return [_view_yield(name, one, grid, band=band, anchors=yields.anchors) for name, one in everything]


def _view_yield(name: str, counted: Yield, grid: Grid, *, band: Band, anchors: int) -> YieldView:
    levels = np.ceil(counted.anchors / max(anchors, 1) * LEVELS).astype(int)
    rows: list[tuple[str, bool, tuple[CellView | None, ...]]] = []
    for i, low in enumerate(grid.lows.tolist()):
        cells = tuple(
            CellView(
                anchors=int(counted.anchors[i, j]),
                candidates=int(counted.candidates[i, j]),
                level=int(levels[i, j]),
                now=(low, high) == (band.low, band.high),
            )
            if low <= high
            else None
            for j, high in enumerate(grid.highs.tolist())
        )
        rows.append((show_number(low), low == band.low, cells))
    return YieldView(
        name=name,
        highs=tuple((show_number(high), high == band.high) for high in grid.highs.tolist()),
        rows=tuple(rows),
        now=next((cell for _, _, cells in rows for cell in cells if cell and cell.now), None),
    )
