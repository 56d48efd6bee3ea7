"""Count what each pair of thresholds would leave: anchors that keep a candidate, and candidates.

Reads candidates in batches of whole anchors; 8 bytes per cell of the grid are kept, and per batch one small number per
anchor and lower threshold. A candidate is kept where ``low <= similarity <= high``, as in mining.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.report.calibrate_candidates import Candidates, Floats, Integers, Mask, find_joint


@dataclass(frozen=True)
class Grid:
    """Be the thresholds that are tried: lower and upper ones, both rising."""

    lows: Floats
    highs: Floats


@dataclass(frozen=True)
class Yield:
    """Hold counts ``(lows, highs)`` of one embedder, or of all together."""

    anchors: Integers
    candidates: Integers


@dataclass(frozen=True)
class Yields:
    """Hold what was counted over all anchors."""

    anchors: int
    per_embedder: tuple[Yield, ...]
    together: Yield
    """Candidates that every embedder found and has in its band, of anchors whose sets the set filter lets through."""
    refused: int
    """Anchors that the set filter refuses, whatever the band is."""
    cut: tuple[int, ...]
    """Per embedder, anchors whose list of neighbours is full and ends inside the band: there may be more of them."""


def count_yields(
    batches: Iterable[Candidates], embedders: Sequence[str], grid: Grid, *, config: MiningConfig, searched: int
) -> Yields:
    """Count all anchors over the whole grid; the set filter (tau_max, and tau_min "before") is the present one.

    Args:
        batches: whole anchors.
        embedders: their names, in the order of their numbers.
        grid: thresholds to try.
        config: the present ones.
        searched: how many neighbours a full list has.
    """
    shape = (len(embedders) + 1, 2, len(grid.lows), len(grid.highs))
    counts = np.zeros(shape, np.int64)
    anchors = refused = 0
    cut = np.zeros(len(embedders), np.int64)
    for batch in batches:
        anchors += batch.rows
        for number in range(len(embedders)):
            own = batch.space == number
            counts[number] += _count(batch.row[own], batch.similarity[own], batch.similarity[own], batch.rows, grid)
        lists = Lists.of(batch, len(embedders))
        cut += ((lists.sizes >= searched) & (lists.lowest >= config.min_similarity)).sum(axis=0)
        passed = lists.pass_set_filter(config)
        refused += int((~passed).sum())
        row, low, high = find_joint(batch, len(embedders))
        kept = passed[row]
        counts[-1] += _count(row[kept], low[kept], high[kept], batch.rows, grid)
    each = [Yield(anchors=one[0], candidates=one[1]) for one in counts]
    return Yields(
        anchors=anchors, per_embedder=tuple(each[:-1]), together=each[-1], refused=refused, cut=tuple(cut.tolist())
    )


@dataclass(frozen=True)
class Lists:
    """Hold size and ends of each list of neighbours, ``(anchors, embedders)``."""

    sizes: Integers
    lowest: Floats
    highest: Floats

    @classmethod
    def of(cls, batch: Candidates, embedders: int) -> "Lists":
        """Measure the lists of a batch."""
        place, shape = batch.row * embedders + batch.space, (batch.rows, embedders)
        lowest, highest = np.full(batch.rows * embedders, np.inf), np.full(batch.rows * embedders, -np.inf)
        np.minimum.at(lowest, place, batch.similarity)
        np.maximum.at(highest, place, batch.similarity)
        sizes = np.bincount(place, minlength=batch.rows * embedders)
        return cls(sizes.reshape(shape), lowest.reshape(shape), highest.reshape(shape))

    def pass_set_filter(self, config: MiningConfig) -> Mask:
        """Say of each anchor whether all its lists pass tau_max, and tau_min where that is tested before the band."""
        passed = (self.sizes > 0) & (self.highest >= config.min_best_similarity)
        if config.check_worst == "before":
            passed &= self.lowest >= config.min_worst_similarity
        return np.logical_and.reduce(passed, axis=1)


def _count(row: Integers, low: Floats, high: Floats, rows: int, grid: Grid) -> Integers:
    """Count anchors and candidates ``(2, lows, highs)``; what is kept has ``low`` and ``high`` in the band."""
    n_lows, n_highs = len(grid.lows), len(grid.highs)
    # It passes the first `reach` lower thresholds, and the upper ones from `first` on.
    reach = np.searchsorted(grid.lows, low, side="right")
    first = np.searchsorted(grid.highs, high, side="left")
    best = np.full(rows * (n_lows + 1), n_highs)
    np.minimum.at(best, row * (n_lows + 1) + reach, first)
    # What passes a lower threshold passes those below it too.
    best = np.minimum.accumulate(best.reshape(rows, n_lows + 1)[:, ::-1], axis=1)[:, ::-1][:, 1:]
    anchors = np.bincount((np.arange(n_lows) * (n_highs + 1) + best).reshape(-1), minlength=n_lows * (n_highs + 1))
    passing = np.bincount(reach * (n_highs + 1) + first, minlength=(n_lows + 1) * (n_highs + 1))
    candidates = np.cumsum(passing.reshape(n_lows + 1, n_highs + 1)[::-1], axis=0)[::-1][1:]
    both = np.stack([anchors.reshape(n_lows, n_highs + 1), candidates])
    return np.cumsum(both, axis=2)[:, :, :n_highs]
