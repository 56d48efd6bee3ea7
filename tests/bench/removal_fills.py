"""Removals of planted things whose right answer is known: good fills and bad ones.

A ``Removal`` is a photograph with a thing in it, the mask of the thing, and the photograph without
it. ``GOOD`` and ``BAD`` name the fills; each is a function of a removal and a generator. LaMa's
weights are not needed: its fills are stood in for by the original, altered as LaMa's fills differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

RGB = NDArray[np.uint8]
Bits = NDArray[np.bool_]
Floats = NDArray[np.float32]
DILATE, FEATHER = 5, 3  # the defaults of ``removals``
REACH = DILATE + FEATHER + 1
PATCH = 9  # side of the patches that a fill is put together from, in pixels
STEP = 3  # pixels between two of them
PATCHES = 6000  # patches to choose from
AWAY = 160  # pixels around the hole that they come from
UNSEEN = 4.0  # levels of 255 that two smoothed images may differ by, to look alike
NEAR = 8.0  # levels between the mean colours of the same texture
ALIKE = 1.5  # largest ratio of contrast or roughness of the same texture
FEWEST = 60  # pixels of a mask
SMOOTH = 1.5  # standard deviation of that smoothing, in pixels


@dataclass(frozen=True, slots=True)
class Removal:
    """Thing in a photograph, and what is behind it."""

    name: str  # of the photograph
    before: RGB
    original: RGB
    mask: Bits
    shaded: RGB | None = None
    """Photograph with the thing and its shadow; ``before`` has no shadow."""


@dataclass(frozen=True, slots=True)
class Filled:
    """Removal after a fill; ``mask`` is what the removal states."""

    before: RGB
    after: RGB
    mask: Bits


Fill = Callable[[Removal, np.random.Generator], Filled | None]
"""Fill a removal; ``None``: the thing or the photograph is too small for this fill."""


def distance_from_zero(bits: Bits) -> Floats:
    """Return each pixel's distance from the nearest one that is not set."""
    distance = cv2.distanceTransform(bits.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.asarray(distance, np.float32)


def hole_of(mask: Bits) -> Bits:
    """Return the pixels that a fill may change."""
    return distance_from_zero(~mask) < REACH


def blend(before: RGB, filling: NDArray[np.generic], mask: Bits) -> RGB:
    """Return the image with a filling in the dilated mask, faded over the feather."""
    distance = distance_from_zero(~mask)
    weight = np.clip((REACH - distance) / (FEATHER + 1), 0, 1)[:, :, None]
    blended = before + weight * (filling.astype(np.float64) - before)
    return np.rint(np.clip(blended, 0, 255)).astype(np.uint8)


def blur(pixels: NDArray[np.generic], sigma: float) -> Floats:
    """Return pixels smoothed by a Gaussian."""
    return np.asarray(cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), sigma), np.float32)


def is_unseen(filled: Filled, removal: Removal) -> bool:
    """Return whether a fill looks like the original: smoothed, they differ by ``UNSEEN`` levels."""
    hole = hole_of(removal.mask)
    rows, columns = np.nonzero(hole)
    box = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
    difference = filled.after[box].astype(np.float32) - removal.original[box]
    return float(np.abs(blur(difference, SMOOTH))[hole[box]].mean()) < UNSEEN


def is_same_texture(filled: Filled, removal: Removal) -> bool:
    """Return whether a fill has the colour, contrast and roughness of the original, nearly."""
    hole = hole_of(removal.mask)
    colours = [pixels[hole].mean(axis=0) for pixels in (filled.after, removal.original)]
    if np.abs(colours[0] - colours[1]).max() > NEAR:
        return False
    for measure in (_contrast, _roughness):
        ratio = measure(filled.after, hole) / measure(removal.original, hole)
        if not 1 / ALIKE < ratio < ALIKE:
            return False
    return True


def _contrast(pixels: RGB, hole: Bits) -> float:
    return float(pixels[hole].std(axis=0).mean()) + 1


def _roughness(pixels: RGB, hole: Bits) -> float:
    rows, columns = np.nonzero(hole)
    box = (slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1))
    fine = pixels[box] - blur(pixels[box], SMOOTH)
    return float(fine[hole[box]].std(axis=0).mean()) + 1


def _fill(removal: Removal, filling: NDArray[np.generic]) -> Filled:
    after = blend(removal.before, filling, removal.mask)
    return Filled(removal.before, after, removal.mask)


def _perfect(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill with the original."""
    return _fill(removal, removal.original)


def _few_levels(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill with the original, up to three levels lighter or darker from place to place."""
    field = blur(rng.standard_normal(removal.original.shape), 20)
    field *= 3 / np.abs(field).max()
    return _fill(removal, removal.original + field)


def _softer(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill with the original after a mild loss of noise."""
    filling = 0.5 * removal.original + 0.5 * blur(removal.original, 1.0)
    return _fill(removal, filling)


def _mask_anew(removal: Removal, mask: Bits) -> Filled:
    """Return a perfect fill of another mask."""
    after = blend(removal.before, removal.original, mask)
    return Filled(removal.before, after, mask)


def _wide(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill a mask that is three pixels too wide with the original."""
    return _mask_anew(removal, distance_from_zero(~removal.mask) <= 3)


def _narrow(removal: Removal, rng: np.random.Generator) -> Filled | None:
    """Fill a mask that is two pixels too tight with the original: its dilation hides that."""
    mask = distance_from_zero(removal.mask) > 2
    return _mask_anew(removal, mask) if mask.sum() >= FEWEST else None


def _shaded(removal: Removal, rng: np.random.Generator) -> Filled | None:
    """Fill with the original, and carry on the shadow that stays around the hole."""
    if removal.shaded is None:
        return None
    hole = hole_of(removal.mask).astype(np.uint8)
    light = (removal.shaded.astype(np.float32) + 1) / (removal.original.astype(np.float32) + 1)
    light = np.clip(light.mean(axis=2), 0, 1)
    levels = np.rint(255 * light).astype(np.uint8)
    carried = blur(cv2.inpaint(levels, hole, 5, cv2.INPAINT_TELEA), 2.0)[:, :, None] / 255
    after = blend(removal.shaded, removal.original * carried, removal.mask)
    return Filled(removal.shaded, after, removal.mask)


def _patched(removal: Removal, rng: np.random.Generator) -> Filled | None:
    """Put the fill together from the most similar patches of the surroundings."""
    hole = hole_of(removal.mask)
    targets = _corners_in(hole)
    sources = _corners_around(hole, rng)
    if len(sources) < PATCHES // 10:
        return None
    pixels = removal.original.astype(np.float32)
    tree = KDTree(_describe(pixels, sources))
    _, nearest = tree.query(_describe(pixels, targets))
    total = np.zeros_like(pixels)
    weights = np.full((*hole.shape, 1), 1e-6, np.float32)
    window = np.outer(*[np.hanning(PATCH + 2)[1:-1] ** 4] * 2)[:, :, None].astype(np.float32)
    for (row, column), index in zip(targets, np.asarray(nearest), strict=True):
        y, x = sources[index]
        target = (slice(row, row + PATCH), slice(column, column + PATCH))
        total[target] += window * pixels[y : y + PATCH, x : x + PATCH]
        weights[target] += window
    return _fill(removal, total / weights)


def _corners_in(hole: Bits) -> NDArray[np.int64]:
    """Return the corners of patches that cover a hole."""
    rows, columns = np.nonzero(hole)
    height, width = hole.shape
    top, left = max(rows.min() - PATCH, 0), max(columns.min() - PATCH, 0)
    bottom = min(rows.max() + 1, height - PATCH)
    right = min(columns.max() + 1, width - PATCH)
    ys = np.r_[np.arange(top, bottom, STEP), bottom]
    xs = np.r_[np.arange(left, right, STEP), right]
    return np.stack(np.meshgrid(ys, xs, indexing="ij"), axis=-1).reshape(-1, 2)


def _corners_around(hole: Bits, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return corners of patches near a hole that do not touch it."""
    near = distance_from_zero(~hole) < AWAY
    touched = cv2.dilate(hole.astype(np.uint8), np.ones((2 * PATCH - 1, 2 * PATCH - 1), np.uint8))
    allowed = near & (touched == 0)
    allowed[-PATCH:] = False
    allowed[:, -PATCH:] = False
    corners = np.argwhere(allowed)
    return corners[rng.permutation(len(corners))[:PATCHES]]


def _describe(pixels: Floats, corners: NDArray[np.int64]) -> Floats:
    """Return the colours of patches, every third pixel of their means over 3 x 3."""
    small = np.asarray(cv2.blur(pixels, (3, 3)), np.float32)
    offsets = np.arange(1, PATCH, 3)
    rows = corners[:, 0, None, None] + offsets[None, :, None]
    columns = corners[:, 1, None, None] + offsets[None, None, :]
    return small[rows, columns].reshape(len(corners), -1)


def _telea(removal: Removal, rng: np.random.Generator) -> Filled:
    return _inpaint(removal, cv2.INPAINT_TELEA)


def _navier_stokes(removal: Removal, rng: np.random.Generator) -> Filled:
    return _inpaint(removal, cv2.INPAINT_NS)


def _inpaint(removal: Removal, method: int) -> Filled:
    hole = hole_of(removal.mask).astype(np.uint8)
    filling = cv2.inpaint(removal.before, hole, 5, method)
    return _fill(removal, filling)


def _blurred(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill with the blurred surroundings."""
    outside = (~hole_of(removal.mask)).astype(np.float32)
    sigma = max(float(np.sqrt(removal.mask.sum())) / 4, 4.0)
    colours = blur(removal.before * outside[:, :, None], sigma)
    weight = blur(outside, sigma)[:, :, None]
    filling = colours / np.maximum(weight, 1e-6)
    return _fill(removal, filling)


def _copied(removal: Removal, rng: np.random.Generator) -> Filled | None:
    """Fill with another part of the photograph."""
    hole = hole_of(removal.mask)
    height, width = hole.shape
    rows, columns = np.nonzero(hole)
    for _ in range(50):
        down = int(rng.integers(-rows.min(), height - rows.max()))
        right = int(rng.integers(-columns.min(), width - columns.max()))
        if not hole[rows + down, columns + right].any():
            filling = removal.original.copy()
            filling[rows, columns] = removal.original[rows + down, columns + right]
            return _fill(removal, filling)
    return None


def _lighter(removal: Removal, rng: np.random.Generator) -> Filled:
    """Fill with the original, 20 levels lighter, or darker where it is light."""
    offset = 20 if np.mean(removal.original[removal.mask]) < 128 else -20
    filling = removal.original.astype(np.float32) + offset
    return _fill(removal, filling)


def _tight(pixels: int) -> Fill:
    """Return a perfect fill of a mask that is too tight: a rim stays outside of the hole."""

    def fill(removal: Removal, rng: np.random.Generator) -> Filled | None:
        depth = distance_from_zero(removal.mask)
        mask = depth > pixels + REACH - 1
        if mask.sum() < FEWEST:
            return None
        return _mask_anew(removal, mask)

    return fill


def _framed(pixels: int) -> Fill:
    """Return a fill that keeps the outermost pixels of the thing, inside of the hole."""

    def fill(removal: Removal, rng: np.random.Generator) -> Filled:
        kept = removal.mask & (distance_from_zero(removal.mask) <= pixels)
        filling = np.where(kept[:, :, None], removal.before, removal.original)
        return _fill(removal, filling)

    return fill


COPY = "copy of another part"
PATCHED = "similar patches"
GOOD: Mapping[str, Fill] = {
    "the original": _perfect,
    "up to 3 levels off": _few_levels,
    "with less noise": _softer,
    PATCHED: _patched,
    "the mask 3 pixels too wide": _wide,
    "the mask 2 pixels too tight": _narrow,
    "the shadow carried on": _shaded,
}
BAD: Mapping[str, Fill] = {
    "Telea": _telea,
    "Navier-Stokes": _navier_stokes,
    "blur of the surroundings": _blurred,
    COPY: _copied,
    "20 levels off": _lighter,
    "3 pixels of the thing, mask too tight": _tight(3),
    "5 pixels of the thing, mask too tight": _tight(5),
    "3 pixels of the thing, in the hole": _framed(3),
    "5 pixels of the thing, in the hole": _framed(5),
}


def move(removal: Removal, photograph: RGB, name: str, rng: np.random.Generator) -> Removal | None:
    """Return the same thing, without its shadow, at a random place of a photograph."""
    touched = cv2.dilate(removal.mask.astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
    rows, columns = np.nonzero(touched)
    size = np.array([np.ptp(rows) + 1, np.ptp(columns) + 1])
    room = np.array(photograph.shape[:2]) - size - 2 * REACH
    if (room <= 0).any():
        return None
    down, right = rng.integers(REACH, room + REACH) - (rows.min(), columns.min())
    before = photograph.copy()
    before[rows + down, columns + right] = removal.before[rows, columns]
    mask = np.zeros(photograph.shape[:2], bool)
    rows, columns = np.nonzero(removal.mask)
    mask[rows + down, columns + right] = True
    return Removal(name, before, photograph, mask)
