"""Measure masks by their run lengths: a mask of 12 million pixels has a few thousand runs.

Reads and writes nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.scene import Mask
from pairwright.tasks.store.masks import run_lengths

Places = NDArray[np.int64]
Corners = tuple[int, int, int, int]
"""Pixels x0, y0, x1, y1, the last two exclusive."""


@dataclass(frozen=True)
class Runs:
    """Be a mask as runs of set pixels, counted down the columns."""

    height: int
    width: int
    starts: Places
    ends: Places
    """Exclusive; no run is empty."""

    @cached_property
    def area(self) -> int:
        """Return how many pixels are set."""
        return int((self.ends - self.starts).sum())

    @property
    def share(self) -> float:
        """Return which share of the pixels is set."""
        return self.area / max(self.height * self.width, 1)

    @cached_property
    def box(self) -> Corners:
        """Return the smallest box around the set pixels; zeros where there are none."""
        if not self.starts.size:
            return (0, 0, 0, 0)
        (left, top), (right, bottom) = (np.divmod(places, self.height) for places in (self.starts, self.ends - 1))
        across = bool((left != right).any())  # such a run goes over the foot of one column and the head of the next
        rows = (0, self.height) if across else (int(top.min()), int(bottom.max()) + 1)
        return (int(left[0]), rows[0], int(right[-1]) + 1, rows[1])

    @cached_property
    def before(self) -> Places:
        """Return for each run how many pixels are set before it, and last how many there are."""
        return np.concatenate([[0], np.cumsum(self.ends - self.starts)])


def read_runs(mask: Mask) -> Runs:
    """Return the runs of an encoded mask.

    Raises:
        ValidationError: its run lengths do not fill it.
    """
    counts = run_lengths(mask)
    ends = np.cumsum(counts)[1::2]
    starts = ends - counts[1::2]
    return Runs(mask.height, mask.width, starts[ends > starts], ends[ends > starts])


def overlap_of(first: Runs, second: Runs) -> float:
    """Return intersection over union of two masks of one size; 0 where both are empty."""
    shared = _shared(first, second) if _boxes_meet(first.box, second.box) else 0
    return shared / max(first.area + second.area - shared, 1)


def overlap_at_most(first: Runs, second: Runs) -> float:
    """Return a bound of their intersection over union, from the areas alone."""
    return min(first.area, second.area) / max(first.area, second.area, 1)


def _boxes_meet(first: Corners, second: Corners) -> bool:
    return max(first[0], second[0]) < min(first[2], second[2]) and max(first[1], second[1]) < min(first[3], second[3])


def _shared(first: Runs, second: Runs) -> int:
    """Return how many pixels both have: those of the second before each run's end, less those before its start."""
    return int((_set_before(second, first.ends) - _set_before(second, first.starts)).sum())


def _set_before(runs: Runs, places: Places) -> Places:
    """Return how many pixels are set before each place."""
    run = np.searchsorted(runs.starts, places)  # runs that start before the place; the last of them may go beyond it
    beyond = np.maximum(runs.ends[np.maximum(run - 1, 0)] - places, 0)
    return runs.before[run] - np.where(run > 0, beyond, 0)
