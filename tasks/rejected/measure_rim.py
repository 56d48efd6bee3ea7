"""Measure the edge along the rim of a filled hole: a halo, a seam, a step in colour (ours).

Reads and writes nothing; needs OpenCV. Pixels are sorted by their distance from the mask into rings one pixel wide, and
by the point of the mask that they are nearest to into arcs of about ``ARC`` pixels. The step of an arc at a distance is
the difference between the mean colours of the next ``SIDE`` rings on both sides; the edge at a distance is the median
of the steps of all arcs. The rim's strength is the strongest edge between where the filling ends and ``PAST`` pixels
beyond, over the strongest edge farther out, or over ``VISIBLE`` where that is weaker.

The median is what tells a halo from the world: an edge of the photograph crosses the rim in a few arcs, a halo follows
it. It follows that a halo along less than half of the rim goes unseen, and so does a filling that is blurred or makes
no sense, but has no edge.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
ARC = 8
"""Pixels of the mask's outline that an arc is about."""
SIDE = 2
"""Rings on each side of an edge that are compared."""
PAST = 5
"""Pixels beyond the hole where the rest of a thing may stand, of which the mask was too tight."""
AROUND = 30
"""Pixels beyond the hole that are looked at."""
APART = 3
"""Rings between those of the rim and those that it is compared with, so that they do not share an edge."""
VISIBLE = 4.0
"""Levels (of 255) of a step that is just seen; weaker surroundings count as this."""
LEAST = 4
"""Pixels of an arc on each side of an edge, for a step to be measured."""


class Profiles(NamedTuple):
    """Hold the sums of colours and the counts of pixels by arc and ring."""

    colours: Floats
    """``(arcs, rings, 3)``."""
    counts: Floats
    """``(arcs, rings)``."""


def measure_rim(pixels: NDArray[np.uint8], mask: Bits, *, dilate: int, feather: int, kept: Bits) -> float:
    """Return how much stronger the edge along the rim is than those around it; about 1 or less where there is none.

    Args:
        pixels: ``(h, w, 3)``, the filled image, or what of it lies within ``margin`` of the mask.
        mask: ``(h, w)``, what was removed, before it was dilated.
        dilate: pixels around the mask that were filled, too.
        feather: pixels over which the filling fades.
        kept: ``(h, w)``, pixels that were left out of the hole, and are no part of its rim.
    """
    if not mask.any() or mask.all():
        return 0.0
    first = dilate - SIDE - 1
    edges = _edges(_profiles(pixels, mask, kept, first=first, last=dilate + margin(feather)))
    ends = SIDE + 1 + feather + 1 + PAST + 1
    rim, around = edges[:ends], edges[ends + APART - 1 :]
    return round(_strongest(rim) / max(_strongest(around), VISIBLE), 4)


def margin(feather: int) -> int:
    """Return how many pixels around the dilated mask are looked at."""
    return feather + 1 + AROUND


def _profiles(pixels: NDArray[np.uint8], mask: Bits, kept: Bits, *, first: int, last: int) -> Profiles:
    """Sort the pixels at distances ``first`` to ``last`` (outside the mask from 1 on, inside down from 0)."""
    rings = last - first
    distance, arc = _outline(mask)
    if first < 1:
        inside, own = _outline(~mask)
        distance, arc = np.where(mask, 1 - inside, distance), np.where(mask, own, arc)
    ring = np.rint(distance).astype(np.int32) - first
    used = (ring >= 0) & (ring < rings) & ~kept
    arcs, number = np.unique(arc[used], return_inverse=True)
    cell, cells = number * rings + ring[used], len(arcs) * rings
    sums = [np.bincount(cell, weights=pixels[..., c][used], minlength=cells) for c in range(3)]
    counts = np.bincount(cell, minlength=cells).astype(np.float64)
    return Profiles(np.stack(sums, axis=1).reshape(len(arcs), rings, 3), counts.reshape(len(arcs), rings))


def _outline(mask: Bits) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return for each pixel outside the mask its distance from it, and the number of the arc that it is nearest to."""
    import cv2

    distance, labels = cv2.distanceTransformWithLabels(
        (~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
    )
    label, (height, width) = np.asarray(labels, np.int32), mask.shape
    tiles = np.arange(height)[:, None] // ARC * (width // ARC + 1) + np.arange(width) // ARC
    arc_of = np.zeros(int(label.max()) + 1, np.int32)
    arc_of[label[mask]] = tiles[mask]
    return np.asarray(distance, np.float32), arc_of[label]


def _edges(profiles: Profiles) -> Floats:
    """Return for each place between two rings the median over the arcs of their steps; NaN where too few have one."""
    colours = np.cumsum(np.pad(profiles.colours, ((0, 0), (1, 0), (0, 0))), axis=1)
    counts = np.cumsum(np.pad(profiles.counts, ((0, 0), (1, 0))), axis=1)
    colours, counts = colours[:, SIDE:] - colours[:, :-SIDE], counts[:, SIDE:] - counts[:, :-SIDE]
    means = colours / np.maximum(counts, 1)[:, :, None]
    steps = np.sqrt(np.mean((means[:, SIDE:] - means[:, :-SIDE]) ** 2, axis=2))
    known = np.minimum(counts[:, SIDE:], counts[:, :-SIDE]) >= LEAST
    return np.array([np.median(steps[known[:, n], n]) if known[:, n].any() else np.nan for n in range(steps.shape[1])])


def _strongest(edges: Floats) -> float:
    return float(np.nanmax(edges)) if np.isfinite(edges).any() else 0.0
