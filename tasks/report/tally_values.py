"""Count how often each value occurs, a batch at a time: what is held does not grow with the rows.

Reads and writes nothing. Values are rounded to a step, so that numbers from 0 to 1 have at most 10,001 of them, and
numbers of words as many as there are different lengths; each takes 16 bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CELLS = 1_000_000
FINE = 0.0001
"""Step of cosines and scores: finer than what is shown of them."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tally:
    """Hold different values, rising, and how often each occurs."""

    values: Floats = field(default_factory=lambda: np.empty(0))
    counts: Integers = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def total(self) -> int:
        """Return how many values there were."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """Return the quantile of all values, between two of them in proportion, as NumPy does; not of none."""
        place = (self.total - 1) * share
        below = int(place)
        ends = np.cumsum(self.counts)
        low, high = self.values[np.searchsorted(ends, (below, min(below + 1, self.total - 1)), side="right")]
        return float(low + (high - low) * (place - below))

    def histogram(self, edges: Floats) -> Integers:
        """Count the values between each two edges; the last bin has its upper edge, too."""
        return np.histogram(self.values, edges, weights=self.counts)[0].astype(np.int64)

    def at_least(self, threshold: float) -> int:
        """Count the values that are not below a threshold."""
        return int(self.counts[np.searchsorted(self.values, threshold - FINE / 2) :].sum())

    def add(self, batch: NDArray[Any], *, step: float = FINE) -> "Tally":
        """Return this with more values, rounded to a step."""
        if not len(batch):
            return self
        new, times = _count(np.round(np.asarray(batch, np.float64) / step).astype(np.int64))
        values, places = np.unique(np.concatenate([self.values, _exact(new, step)]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([self.counts, times]), minlength=len(values))
        return Tally(values, counts.astype(np.int64))


def _count(steps: Integers) -> tuple[Integers, Integers]:
    """Return different numbers, rising, and how often each occurs; where they lie close without sorting them."""
    low, high = int(steps.min()), int(steps.max())
    if high - low > MOST_CELLS:
        return np.unique(steps, return_counts=True)
    counts = np.bincount(steps - low)
    filled = np.flatnonzero(counts)
    return filled + low, counts[filled]


def _exact(steps: Integers, step: float) -> Floats:
    """Return the numbers that so many steps are: 0.1, not 0.1000000001."""
    return np.asarray(np.round(steps * step, 4), np.float64)


def tally(batches: Iterable[NDArray[Any]], *, step: float = FINE) -> Tally:
    """Count the values of all batches."""
    found = Tally()
    for batch in batches:
        found = found.add(batch, step=step)
    return found
