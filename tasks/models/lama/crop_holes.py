"""Cut holes out of images with what is around them, in few sizes, and put the filling back.

Reads RGB pixels and a hole, writes the crop that a network fills; needs OpenCV. A network that sees the whole image at
a small size fills a hole coarsely; a crop at the image's own resolution does not, and costs less. All of it is ours,
apart from the padding, which is LaMa's (``symmetric``, at the bottom and on the right).

Crops that go together through a network must have one size. They grow into the image, up to a multiple of ``STEP``
pixels, so that few sizes occur and little is padded: a network whose reach is the whole crop, such as LaMa, sees the
padding. How a crop is cut and padded never depends on the others of its batch.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.inpainting import Hole, Pixels, Window

STEP = 64
"""Crops grow to multiples of so many pixels where the image has them."""
LEAST_STEP = 8
"""LaMa halves a crop three times."""
WASTE = 1.25
"""By how much padding to ``STEP`` may make an area larger; beyond, a crop is padded to ``LEAST_STEP`` only."""
LEAST_CONTEXT = 64
"""Pixels around a hole at the least, where the image has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCrop:
    """Be a hole with its surroundings, as a network takes it."""

    pixels: Pixels
    """``(height, width, 4)``: RGB, and 1 in the hole; shrunk, then padded."""
    shrunk: tuple[int, int]
    """Height and width before the padding."""
    size: tuple[int, int]
    """Height and width in the image."""
    place: tuple[slice, slice]
    """Where the window is in the crop, in pixels of the image."""


def crop_hole(image: Pixels, hole: Hole, window: Window, *, context: float, max_side: int) -> HoleCrop:
    """Return a hole with what is around it.

    Args:
        image: ``(height, width, 3)``.
        hole: ``(h, w)`` of the window.
        window: where the hole is.
        context: how much is seen on each side, in sides of the window.
        max_side: longest side of the crop, before it is padded; a larger one is shrunk.
    """
    x0, y0, x1, y1 = window
    columns, rows = _grown(x0, x1, image.shape[1], context), _grown(y0, y1, image.shape[0], context)
    scale = min(1.0, max_side / max(columns[1] - columns[0], rows[1] - rows[0]))
    columns = _rounded(*columns, image.shape[1], scale=scale, most=max_side)
    rows = _rounded(*rows, image.shape[0], scale=scale, most=max_side)
    size = (rows[1] - rows[0], columns[1] - columns[0])
    place = (slice(y0 - rows[0], y1 - rows[0]), slice(x0 - columns[0], x1 - columns[0]))
    inside = np.zeros(size, dtype=np.uint8)
    inside[place] = hole
    shrunk = (_shrunk(size[0], scale), _shrunk(size[1], scale))
    seen = _resized(image[rows[0] : rows[1], columns[0] : columns[1]], inside, shrunk)
    return HoleCrop(pixels=_padded(seen), shrunk=shrunk, size=size, place=place)


def put_back(crop: HoleCrop, filled: Pixels) -> Pixels:
    """Return the ``(h, w, 3)`` pixels of a hole's window from the filled ``(height, width, 3)`` crop."""
    import cv2

    inner = filled[: crop.shrunk[0], : crop.shrunk[1]]
    if crop.shrunk != crop.size:
        inner = cv2.resize(inner, crop.size[::-1], interpolation=cv2.INTER_CUBIC).astype(np.uint8, copy=False)
    return np.ascontiguousarray(inner[crop.place])


def _grown(low: int, high: int, limit: int, context: float) -> tuple[int, int]:
    """Return a span with its context, cut at the image's borders."""
    more = max(ceil(context * (high - low)), LEAST_CONTEXT)
    return max(low - more, 0), min(high + more, limit)


def _rounded(low: int, high: int, limit: int, *, scale: float, most: int) -> tuple[int, int]:
    """Return a span that has, once it is shrunk, a multiple of ``STEP`` pixels, as far as the image reaches."""
    wanted = min(ceil(_shrunk(high - low, scale) / STEP) * STEP, most)
    more = min(max(int(wanted / scale), high - low), limit) - (high - low)
    start = min(max(low - more // 2, 0), limit - (high - low) - more)
    return start, start + (high - low) + more


def _shrunk(side: int, scale: float) -> int:
    """Return a side's length at a scale, rounded up but for the errors of floats."""
    return max(ceil(side * scale - 1e-6), 1)


def _resized(pixels: Pixels, inside: Pixels, size: tuple[int, int]) -> Pixels:
    """Return both in one, shrunk; a pixel of which any part is hole, is hole."""
    import cv2

    if inside.shape != size:
        pixels = cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
        inside = (cv2.resize(inside.astype(np.float32), size[::-1], interpolation=cv2.INTER_AREA) > 0).astype(np.uint8)
    return np.dstack([pixels, inside])


def _padded(seen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = seen.shape[:2]
    wide = [_up(side, STEP) for side in (height, width)]
    if wide[0] * wide[1] > WASTE * height * width:
        wide = [_up(side, LEAST_STEP) for side in (height, width)]
    return np.pad(seen, ((0, wide[0] - height), (0, wide[1] - width), (0, 0)), mode="symmetric")


def _up(side: int, step: int) -> int:
    return ceil(side / step) * step
