"""Cut similarities into bins, choose thresholds to try, and draw a sample of pairs from each bin.

Reads similarities and candidates in batches. Kept in memory: counts of 2,000 narrow cells per embedder, and the
sampled pairs. Bins are narrow in and around the present band, wide where there is little to see, and no bin has a
present threshold inside it. The sample depends on the pairs and the seed alone, not on their order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import MiningConfig
from pairwright.tasks.pages.ticks import round_step
from pairwright.tasks.report.calibrate_candidates import Candidates, Floats, Images, Integers
from pairwright.tasks.report.calibrate_yield import Grid

CELLS = 1000
"""Cells per unit of similarity."""
AROUND = 0.1
"""How far beyond the band bins are narrow."""
OUTER_BINS = 3
"""Bins of equal counts below that, and as many above."""
GRID_BELOW, GRID_ABOVE = 0.15, 0.2
"""How far from the present thresholds others are tried, at the least."""
LOW_THRESHOLDS, HIGH_THRESHOLDS = 10, 5
TOP = float(np.nextafter(1, 2))
SEED = 20


@dataclass(frozen=True, slots=True)
class Band:
    """Hold the present thresholds."""

    low: float
    high: float

    @property
    def end(self) -> float:
        """Return the first number above the band, whose upper threshold belongs to it."""
        return float(np.nextafter(self.high, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Be the similarities from ``low`` to below ``high``; ``side`` is "below", "in" or "above" the present band."""

    low: float
    high: float
    side: str


@dataclass(frozen=True)
class Spread:
    """Hold how the similarities of one embedder are spread over narrow cells."""

    edges: Floats
    counts: Integers

    @property
    def total(self) -> int:
        """Return the number of candidates."""
        return int(self.counts.sum())

    def count(self, low: float, high: float) -> int:
        """Count from one edge to below another."""
        start, stop = np.searchsorted(self.edges, (low, high))
        return int(self.counts[start:stop].sum())

    def quantile(self, share: float) -> float:
        """Return the edge up to which about this share lies."""
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.total))
        return float(self.edges[min(place, len(self.counts) - 1)])


def show_number(value: float) -> str:
    """Return "0.78", "0.9999": at least two digits, and those that a threshold may have."""
    text = f"{min(value, 1.0):.4f}".rstrip("0")
    return text + "0" * max(0, 2 - len(text.partition(".")[2]))


def measure_spread(similarities: Iterable[tuple[str, Floats]], band: Band) -> dict[str, Spread]:
    """Count all similarities per embedder."""
    edges = np.unique([*(np.arange(-CELLS, CELLS + 1) / CELLS), band.low, band.end, TOP])
    counts: dict[str, Integers] = {}
    for name, values in similarities:
        cells = np.searchsorted(edges, values, side="right") - 1
        own = counts.setdefault(name, np.zeros(len(edges) - 1, np.int64))
        own += np.bincount(cells.clip(0, len(own) - 1), minlength=len(own))
    return {name: Spread(edges, own) for name, own in counts.items()}


def cut_bins(spread: Spread, band: Band, *, width: float, least: int) -> list[Bin]:
    """Return rising bins that hold every similarity; each has at least ``least`` where its side of the band has."""
    lowest = min(float(spread.edges[np.flatnonzero(spread.counts)[0]]), band.low) if spread.total else band.low
    sides = zip(("below", "in", "above"), pairwise((lowest, band.low, band.end, TOP)), strict=True)
    return [
        Bin(low=low, high=high, side=side)
        for side, (start, stop) in sides
        for low, high in _merge(spread, _cuts(spread, start, stop, width=width, band=band), least)
    ]


def _cuts(spread: Spread, start: float, stop: float, *, width: float, band: Band) -> list[float]:
    """Return the edges of one side of the band: narrow near it, of equal counts further out."""
    first = math.floor(round((band.low - AROUND) / width, 4))
    last = math.ceil(round((band.high + AROUND) / width, 4))
    steps = [round(number * width, 3) for number in range(first, last + 1)]
    near = [cut for cut in steps if start + width / 4 < cut < stop - width / 4]
    outer = [cut for low, high in ((start, steps[0]), (steps[-1], stop)) for cut in _equal(spread, low, high)]
    return sorted({start, *near, *outer, stop})


def _equal(spread: Spread, low: float, high: float) -> list[float]:
    """Return cuts that divide what lies between two numbers into equal counts."""
    first, last = np.searchsorted(spread.edges, (low, high))
    counts = np.cumsum(spread.counts[first:last])
    if not len(counts) or not counts[-1]:
        return []
    wanted = [counts[-1] * part / OUTER_BINS for part in range(1, OUTER_BINS)]
    return [float(spread.edges[first + 1 + int(np.searchsorted(counts, one))]) for one in wanted]


def _merge(spread: Spread, cuts: Sequence[float], least: int) -> list[tuple[float, float]]:
    """Join neighbouring bins until each holds enough; they lie edge to edge, from the first cut to the last."""
    edges, have = [cuts[0]], 0
    for low, high in pairwise(cuts):
        have += spread.count(low, high)
        if have >= least:
            edges.append(high)
            have = 0
    if edges[-1] != cuts[-1]:  # what is left over joins the last
        edges = [*edges[: max(len(edges) - 1, 1)], cuts[-1]]
    return list(pairwise(edges)) if spread.count(cuts[0], cuts[-1]) else []


def choose_grid(spreads: Iterable[Spread], band: Band) -> Grid:
    """Return round thresholds around the present ones, as far as the similarities go, and these."""
    shown = [one for one in spreads if one.total]
    bottom = min(band.low - GRID_BELOW, *(one.quantile(0.95) for one in shown))
    top = max(band.low + GRID_ABOVE, *(one.quantile(0.5) for one in shown))
    lows = _round_numbers(max(bottom, 0.0), min(top, 1.0), LOW_THRESHOLDS)
    bottom = min(band.high - GRID_BELOW, *(one.quantile(0.99) for one in shown))
    highs = _round_numbers(max(bottom, 0.0), 1.0, HIGH_THRESHOLDS)
    return Grid(lows=np.unique([*lows, band.low]), highs=np.unique([*highs, band.high]))


def _round_numbers(low: float, high: float, number: int) -> list[float]:
    step = round_step(max(high - low, 0.01) / number, least=0.001)
    first, last = math.ceil(round(low / step, 4)), math.floor(round(high / step, 4))
    return [round(place * step, 6) for place in range(first, last + 1)]


@dataclass(frozen=True)
class Sampled:
    """Hold the sampled candidates of one embedder, entry by entry, ordered by bin and by chance within it."""

    bin: Integers
    chance: NDArray[np.uint64]
    anchor: Integers
    other: Integers
    similarity: Floats


class Sampler:
    """Keep, of each bin, the pairs that chance puts first; a pair found from both of its images is one."""

    def __init__(self, bins: Sequence[Bin], images: Images, *, per_bin: int) -> None:
        self._edges = np.array([one.low for one in bins])
        self._ends = np.array([one.high for one in bins])
        self._images, self._per_bin = images, per_bin
        self._most = np.full(len(bins), np.iinfo(np.uint64).max, np.uint64)
        self.counts = np.zeros(len(bins), np.int64)
        """Candidates in each bin."""
        none = np.empty(0, np.int64)
        self.sampled = Sampled(none, none.astype(np.uint64), none, none, np.empty(0))

    def add(self, batch: Candidates) -> None:
        """Look at more candidates of this embedder."""
        places = np.searchsorted(self._edges, batch.similarity, side="right") - 1
        # Bins are cut from these candidates; only a table that changed meanwhile could have one outside of them.
        inside = (places >= 0) & (batch.similarity < self._ends[places])
        batch, places = batch.of(inside), places[inside]
        self.counts += np.bincount(places, minlength=len(self.counts))
        known = (batch.anchor >= 0) & (batch.other >= 0) & (batch.anchor != batch.other)
        chance = draw(self._images.numbers[batch.anchor], self._images.numbers[batch.other])
        early = known & (chance <= self._most[places])
        old, new = self.sampled, batch.of(early)
        self._keep(
            Sampled(
                np.concatenate([old.bin, places[early]]),
                np.concatenate([old.chance, chance[early]]),
                np.concatenate([old.anchor, new.anchor]),
                np.concatenate([old.other, new.other]),
                np.concatenate([old.similarity, new.similarity]),
            )
        )

    def _keep(self, all_: Sampled) -> None:
        order = np.lexsort((self._images.numbers[all_.anchor], all_.chance, all_.bin))
        bins, chance = all_.bin[order], all_.chance[order]
        new = np.append(True, (np.diff(bins) != 0) | (chance[1:] != chance[:-1]))[: len(order)]
        order, bins = order[new], bins[new]
        rank = np.arange(len(order)) - np.searchsorted(bins, bins)
        order = order[rank < self._per_bin]
        self.sampled = Sampled(
            all_.bin[order], all_.chance[order], all_.anchor[order], all_.other[order], all_.similarity[order]
        )
        full, counts = np.unique(self.sampled.bin, return_counts=True)
        ends = np.cumsum(counts) - 1
        self._most[full[counts == self._per_bin]] = self.sampled.chance[ends[counts == self._per_bin]]


def draw(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a number by chance for each pair, the same for both of its orders (SplitMix64)."""
    mixed = np.minimum(first, second) * np.uint64(0x9E3779B97F4A7C15) + np.maximum(first, second) + np.uint64(SEED)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def band_of(config: MiningConfig) -> Band:
    """Return the present thresholds."""
    return Band(config.min_similarity, config.max_similarity)
