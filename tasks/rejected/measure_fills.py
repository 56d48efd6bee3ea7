"""Compare the filling of a hole with what is around it, on photographs (ours).

Reads a ``RemovalCrop``, writes nothing; needs OpenCV. Three numbers, each the median over the arcs
or pixels of the rim, so that a single edge of the photograph does not decide:

- *texture*: how rough the filling is, as a share of its surroundings. Smears repeat the colours of
  the border inwards, so roughness is measured outwards, across the rim.
- *shift*: by how many levels the filling is lighter or darker than what is around it.
- *left*: how much of the element's colour is left along the rim, inside of the mask or outside of
  the hole: 0 what is around, 1 the element.

What each limit refuses is measured by ``tests/bench/bench_removals.py``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.rejected.measure_removals import (
    FEWEST,
    PAST,
    Bits,
    Floats,
    RemovalCrop,
    measure_arcs,
    profile_arcs,
)

STRIDE = 2  # pixels between two that are compared, for the texture
RING = 12  # width in pixels of the surroundings
FEWEST_PIXELS = 6  # least pixels of an arc on each side
UNSEEN = 0.3  # levels of 255: weaker texture counts as this
SMOOTH = 2.0  # standard deviation in pixels of the smoothing before steps are measured
STEP_PAST = 4  # pixels that a step is longer than the feather
STEP_WIDTH = 3  # rings from which steps start
SKIN = 2  # outermost pixels of a mask, which may be too wide
DEPTH = 6  # pixels of the element below them that show its colour
BAND = 3  # width in pixels of what may be left
GAP = 3  # pixels between it and the surroundings that it is compared with
AROUND = 6  # width in pixels of these
FAINT = 8.0  # levels by which an element must differ from its surroundings; less counts as this


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMeasures:
    """Comparison of a filling with its surroundings; the defaults: too small to measure."""

    texture: float = 1.0
    shift: float = 0.0
    left: float = 0.0


UNMEASURED = FillMeasures()


@dataclass(frozen=True, slots=True)
class _Rings:
    """Pixels of a crop by their distance from the mask."""

    distance: NDArray[np.float32]  # ``(h, w)``; 0 or less in the mask
    arc: NDArray[np.int64]
    rows: NDArray[np.float32]  # direction away from the mask, as a unit vector
    columns: NDArray[np.float32]

    def outwards(self, used: Bits, length: int) -> tuple[Bits, tuple[NDArray[np.int64], ...]]:
        """Return which used pixels have one so many pixels farther out, and where these are."""
        rows, columns = np.nonzero(used)
        down = np.rint(rows + length * self.rows[used]).astype(np.int64)
        right = np.rint(columns + length * self.columns[used]).astype(np.int64)
        height, width = used.shape
        inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
        start = np.zeros_like(used)
        start[rows[inside], columns[inside]] = True
        return start, (down[inside], right[inside])


def measure_fill(crop: RemovalCrop, *, dilate: int, feather: int) -> FillMeasures:
    """Compare the filling of a hole, dilated and feathered, with what is around it."""
    if not crop.mask.any() or crop.mask.all():
        return UNMEASURED
    rings = _measure_rings(crop.mask)
    reach = dilate + feather + 1
    return FillMeasures(
        texture=_measure_texture(crop.after, rings, inner=dilate, outer=reach),
        shift=_measure_shift(crop.after, rings, inner=dilate, outer=reach),
        left=_measure_left(crop, outer=reach),
    )


def _measure_rings(mask: Bits) -> _Rings:
    import cv2

    distance, arc = measure_arcs(mask, inside=True)
    smooth = cv2.GaussianBlur(distance, (0, 0), SMOOTH)
    rows, columns = np.gradient(smooth)
    length = np.hypot(rows, columns) + 1e-6
    return _Rings(distance, arc, rows / length, columns / length)


def _measure_texture(pixels: RGB, rings: _Rings, *, inner: int, outer: int) -> float:
    """Return the roughness of the filling as a share of that of its surroundings."""
    distance = rings.distance
    inside = distance <= inner - 1 - STRIDE
    outside = (distance >= outer + 1) & (distance < outer + 1 + RING)
    arcs = int(rings.arc.max()) + 1
    within, pixels_within = _roughness(pixels, rings, inside, arcs)
    around, pixels_around = _roughness(pixels, rings, outside, arcs)
    measured = np.minimum(pixels_within, pixels_around) >= FEWEST_PIXELS
    if measured.sum() < FEWEST:
        return 1.0
    ratios = (within[measured] + UNSEEN) / (around[measured] + UNSEEN)
    return round(float(np.median(ratios)), 4)


def _roughness(pixels: RGB, rings: _Rings, used: Bits, arcs: int) -> tuple[Floats, Floats]:
    """Return each arc's mean step over ``STRIDE`` pixels, and how many it has."""
    start, end = rings.outwards(used, STRIDE)
    differences = pixels[end].astype(np.float64) - pixels[start]
    steps = np.sqrt(np.mean(differences**2, axis=1))
    arc = rings.arc[start]
    counts = np.bincount(arc, minlength=arcs).astype(np.float64)
    sums = np.bincount(arc, weights=steps, minlength=arcs)
    return sums / np.maximum(counts, 1), counts


def _measure_shift(pixels: RGB, rings: _Rings, *, inner: int, outer: int) -> float:
    """Return the median step in colour across the rim, in levels of 255."""
    import cv2

    smooth = np.asarray(cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), SMOOTH), np.float32)
    distance = np.rint(rings.distance)
    used = (distance > inner - STEP_WIDTH) & (distance <= inner)
    start, end = rings.outwards(used, outer - inner - 1 + STEP_PAST)
    if not start.any():
        return 0.0
    step = np.median(smooth[end] - smooth[start], axis=0)
    return round(float(np.sqrt(np.mean(step**2))), 2)


def _measure_left(crop: RemovalCrop, *, outer: int) -> float:
    """Return the largest share of the element's colour in a band along the rim."""
    first = -SKIN - DEPTH
    last = outer + PAST + GAP + AROUND
    before = _Profile(*profile_arcs(crop.before, crop.mask, first=first, last=last), first)
    after = _Profile(*profile_arcs(crop.after, crop.mask, first=first, last=last), first)
    element = before.mean(first, -SKIN)
    shares: list[float] = []
    for start in range(first, outer + PAST - BAND + 1):
        band = after.mean(start, start + BAND)
        around = after.mean(start + BAND + GAP, start + BAND + GAP + AROUND)
        shares.append(_share_of(band, element, around))
    return round(max(shares, default=0.0), 4)


@dataclass(frozen=True, slots=True)
class _Profile:
    """Sums of colours and counts of pixels by arc and ring."""

    colours: Floats  # ``(arcs, rings, 3)``
    counts: Floats  # ``(arcs, rings)``
    first: int  # distance of the first ring

    def mean(self, start: int, end: int) -> Floats:
        """Return each arc's mean colour of some rings; nan for fewer than ``FEWEST_PIXELS``."""
        rings = slice(start - self.first, end - self.first)
        counts = self.counts[:, rings].sum(axis=1)
        counts = np.where(counts >= FEWEST_PIXELS, counts, np.nan)
        return self.colours[:, rings].sum(axis=1) / counts[:, None]


def _share_of(band: Floats, element: Floats, around: Floats) -> float:
    """Return the median over the arcs of how far a band's colour is from around to the element."""
    direction = element - around
    projected = ((band - around) * direction).sum(axis=1)
    squares = (direction**2).sum(axis=1)
    measured = np.isfinite(projected)
    if measured.sum() < FEWEST:
        return 0.0
    shares = projected / np.maximum(squares, 3 * FAINT**2)
    return float(np.median(shares[measured]))
