"""Tell from boxes whether a removed element is still seen, and whether something grew in its place (ours).

Reads and writes nothing. A box is in the place of what was removed where at least half of its pixels were filled. A
thin thing fills little of its box; therefore a box counts as well that agrees with one of the element's own, and those
are found by their reach: the smallest box around the filled pixels in them is at least half as large as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import Box, Tag

MOSTLY = 0.5
"""From this share on, a box lies mostly in the hole, is the same as another, or is mostly inside another."""


@dataclass(frozen=True)
class Place:
    """Pixels of an image that a removal filled."""

    corner: tuple[int, int]
    """Column and row of the image at which ``filled`` starts."""
    filled: NDArray[np.bool_]
    """``(h, w)``; all other pixels of the image were not filled."""

    @cached_property
    def _sums(self) -> NDArray[np.int32]:
        sums = np.zeros((self.filled.shape[0] + 1, self.filled.shape[1] + 1), np.int32)
        np.cumsum(np.cumsum(self.filled, axis=0, dtype=np.int32), axis=1, out=sums[1:, 1:])
        return sums

    def covered(self, box: Box) -> float:
        """Return the share of a box that was filled."""
        x0, y0, x1, y1 = self._pixels(box)
        count = self._sums[y1, x1] - self._sums[y0, x1] - self._sums[y1, x0] + self._sums[y0, x0]
        return min(float(count) / max(_area(box), 1.0), 1.0)

    def spanned(self, box: Box) -> float:
        """Return how large the smallest box around the filled pixels of a box is, as a share of it."""
        x0, y0, x1, y1 = self._pixels(box)
        part = self.filled[y0:y1, x0:x1]
        columns, lines = np.flatnonzero(part.any(axis=0)), np.flatnonzero(part.any(axis=1))
        if not columns.size:
            return 0.0
        inner = float((columns[-1] - columns[0] + 1) * (lines[-1] - lines[0] + 1))
        return min(inner / max(_area(box), 1.0), 1.0)

    def _pixels(self, box: Box) -> tuple[int, int, int, int]:
        """Return the box in pixels of ``filled``, cut to it; boxes that are no numbers are empty."""
        corners = np.nan_to_num([box.x0, box.y0, box.x1, box.y1]) - np.tile(self.corner, 2)
        height, width = self.filled.shape
        x0, y0, x1, y1 = np.rint(np.clip(corners, 0, [width, height, width, height])).astype(int).tolist()
        return x0, y0, max(x0, x1), max(y0, y1)


class Found(NamedTuple):
    """Scores with which a detector saw a thing in its place, before and after its removal; 0: it did not."""

    before: float
    after: float


class Grown(NamedTuple):
    """Thing that grew in the place of a removed element, with the highest score; no name: nothing did."""

    tag: str
    score: float


def look_for_element(tag: int, place: Place, *, before: Sequence[Box], after: Sequence[Box]) -> Found:
    """Return the highest scores of the removed element's tag in its place, of all boxes before and after."""
    own = [box for box in before if box.tag == tag and max(place.covered(box), place.spanned(box)) >= MOSTLY]
    left = [
        box.score
        for box in after
        if box.tag == tag and (place.covered(box) >= MOSTLY or any(_overlap(box, old) >= MOSTLY for old in own))
    ]
    return Found(max((box.score for box in own), default=0.0), max(left, default=0.0))


def find_grown(
    tags: Sequence[Tag], place: Place, *, before: Sequence[Box], after: Sequence[Box], least: float
) -> Grown:
    """Return the thing with the highest score that lies mostly in the hole and was not seen beside it before.

    What stood behind the removed element and can be seen now was there before: its box of the same tag lay mostly
    outside the hole, and lies mostly inside the new one. What was wholly hidden nobody has seen: the filling made it
    up, and so it grew. The same holds for a thing that stood in front and went with the element. A box counts from the
    score ``least`` on.
    """
    beside = [old for old in before if place.covered(old) < MOSTLY]
    new = [
        box
        for box in after
        if box.score >= least
        and place.covered(box) >= MOSTLY
        and not any(old.tag == box.tag and _shared(box, old) >= MOSTLY * _area(old) for old in beside)
    ]
    best = max(new, key=lambda box: box.score, default=None)
    return Grown(tags[best.tag].name, best.score) if best else Grown("", 0.0)


def _overlap(first: Box, second: Box) -> float:
    shared = _shared(first, second)
    return shared / max(_area(first) + _area(second) - shared, 1.0)


def _shared(first: Box, second: Box) -> float:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def _area(box: Box) -> float:
    return max(box.x1 - box.x0, 0.0) * max(box.y1 - box.y0, 0.0)
