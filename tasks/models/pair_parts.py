"""Align the two images of a pair, and cut both into tiles (ours).

Where keypoints of both images fit one homography (``tasks.models.align_images``), or else their
phases fit one shift (``find_shift``), the second is warped onto the first, and both are cropped to
the largest rectangle that both show. A shift moves pixels without changing them. Large images are
cut into tiles of one size, the same windows of both; a tile is left out if an image of it has a
single value, such as no data. Pairs that a source brings are cut as they are read, mined ones in
``tasks.mining``.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import TilesConfig
from pairwright.schemas.rows import ImageRow, make_key
from pairwright.tasks.images.decode import RGB
from pairwright.tasks.images.masks import Corners, encode_patch
from pairwright.tasks.models.align_images import find_homography
from pairwright.tasks.models.find_shift import find_shift

Bits = NDArray[np.bool_]
Matrix = NDArray[np.float64]
NOT_ALIGNED = "images were not aligned"
TOO_LITTLE = "the images share too little"
MIN_SHARED = 0.5
"""Minimum share of the first image that both show."""
MAX_SHIFT_ERROR = 0.5
"""Maximum distance, in pixels, between where a homography and a shift take a corner."""
SAME: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPart:
    """Part of a pair of images, in pixels of the first."""

    first: RGB
    second: RGB
    mask: Bits | None
    """``(h, w)``, where the second image differs; ``None``: unknown."""
    window: Corners
    """Pixels x0, y0, x1, y1 of the first image, the last two exclusive."""
    is_whole: bool = True
    """Whether the window is all of the first image."""
    transform: tuple[float, ...] = ()
    """Homography from the first image's pixels to those of the second as the source gave it, 3 x 3
    row by row; empty: the second image was not warped."""

    def keeps(self, side: int, image: ImageRow) -> bool:
        """Return whether it shows an image of a side (0 or 1) whole and not warped."""
        if side == 1 and self.transform not in ((), SAME):
            return False
        pixels = self.second if side else self.first
        return pixels.shape[:2] == (image.height, image.width)


def whole_pair(first: RGB, second: RGB, mask: Bits | None) -> PairPart:
    """Return a pair as a part that holds all of it."""
    height, width = first.shape[:2]
    return PairPart(first=first, second=second, mask=mask, window=(0, 0, width, height))


def align_pair(pair: PairPart) -> PairPart | str:
    """Return what both images show, the second warped onto the first, or why they do not fit."""
    height, width = pair.first.shape[:2]
    fitted = find_homography(pair.first, pair.second)
    if isinstance(fitted, str):
        homography = find_shift(pair.first, pair.second)
        if homography is None:
            return fitted
    else:
        homography = _round_shift(fitted[0] / fitted[0][2, 2], width, height)
    transform = tuple(round(float(number), 9) for number in homography.ravel())
    if transform == SAME and pair.second.shape == pair.first.shape:
        return replace(pair, transform=transform)
    warped, inside = warp_second(pair.second, transform, width, height)
    mask = pair.mask
    if mask is not None:
        mask_values = mask.astype(np.uint8)
        warped_mask, _ = warp_second(mask_values, transform, width, height, exact=True)
        mask = warped_mask > 0
    x0, y0, x1, y1 = find_rectangle(inside)
    if (x1 - x0) * (y1 - y0) < MIN_SHARED * width * height:
        return TOO_LITTLE
    aligned = replace(pair, second=warped, mask=mask, transform=transform)
    return _crop(aligned, (x0, y0, x1, y1))


def _round_shift(homography: Matrix, width: int, height: int) -> Matrix:
    """Return a homography as a shift by whole pixels, if it takes all corners nearly so far."""
    corners = np.array([[0, 0, 1], [width, 0, 1], [0, height, 1], [width, height, 1]], np.float64)
    moved = corners @ homography.T
    shifts = moved[:, :2] / moved[:, 2:] - corners[:, :2]
    shift = np.rint(shifts.mean(axis=0))
    if np.linalg.norm(shifts - shift, axis=1).max() > MAX_SHIFT_ERROR:
        return homography
    rounded = np.eye(3)
    rounded[:2, 2] = shift
    return rounded


def warp_second(
    image: NDArray[np.uint8],
    transform: Sequence[float],
    width: int,
    height: int,
    *,
    exact: bool = False,
) -> tuple[NDArray[np.uint8], Bits]:
    """Return a second image in the first one's pixels, and where it has some; ``exact``: unmixed.

    ``transform`` as in ``PairPart``; ``width`` and ``height`` are the first image's.
    """
    import cv2

    flags = cv2.INTER_NEAREST if exact else cv2.INTER_LINEAR
    size = (width, height)
    matrix = np.array(transform, np.float64).reshape(3, 3)
    warped = cv2.warpPerspective(image, matrix, size, flags=flags | cv2.WARP_INVERSE_MAP)
    whole = np.full(image.shape[:2], 255, np.uint8)
    linear = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    inside = cv2.warpPerspective(whole, matrix, size, flags=linear)
    return np.asarray(warped, np.uint8), np.asarray(inside) == 255


def find_rectangle(inside: Bits) -> Corners:
    """Return a large rectangle of set pixels: the side that lacks most is moved inwards."""
    x0, y0, x1, y1 = 0, 0, inside.shape[1], inside.shape[0]
    while x0 < x1 and y0 < y1:
        sides = (
            inside[y0:y1, x0].mean(),
            inside[y0, x0:x1].mean(),
            inside[y0:y1, x1 - 1].mean(),
            inside[y1 - 1, x0:x1].mean(),
        )
        worst = int(np.argmin(sides))
        if sides[worst] == 1:
            break
        if worst == 0:
            x0 += 1
        elif worst == 1:
            y0 += 1
        elif worst == 2:
            x1 -= 1
        else:
            y1 -= 1
    return x0, y0, max(x0, x1), max(y0, y1)


def _crop(part: PairPart, window: Corners) -> PairPart:
    """Return a window of a part, whose ``window`` is in pixels of the first image."""
    x0, y0, x1, y1 = window
    left, top, _, _ = part.window
    height, width = part.first.shape[:2]
    mask = None if part.mask is None else part.mask[y0:y1, x0:x1]
    return replace(
        part,
        first=np.ascontiguousarray(part.first[y0:y1, x0:x1]),
        second=np.ascontiguousarray(part.second[y0:y1, x0:x1]),
        mask=mask,
        window=(left + x0, top + y0, left + x1, top + y1),
        is_whole=part.is_whole and window == (0, 0, width, height),
    )


def cut_image(image: ImageRow, pixels: RGB, window: Sequence[int], *, key: str = "") -> ImageRow:
    """Return the row of a part of an image, without a scene graph, which is of the whole.

    ``window``: pixels x0, y0, x1, y1 of the pair's first image. Without a key, the bytes' hash.
    """
    data = encode_patch(pixels)
    key = key or make_key(data)
    return replace(
        image,
        key=key,
        subject=key,
        image=data,
        format="png",
        width=pixels.shape[1],
        height=pixels.shape[0],
        name=f"{image.name} [{', '.join(map(str, window))}]",
        graph=None,
    )


def cut_tiles(pair: PairPart, config: TilesConfig) -> Iterator[PairPart]:
    """Yield the tiles of a pair, row by row; the last of a row and column end at the edge.

    Left out are tiles of which an image has a single value, and those whose images are equal
    although no mask says so.
    """
    height, width = pair.first.shape[:2]
    for y in tile_starts(height, config):
        for x in tile_starts(width, config):
            window = (x, y, min(x + config.size, width), min(y + config.size, height))
            tile = _crop(pair, window)
            if is_empty(tile.first) or is_empty(tile.second):
                continue
            if tile.mask is None and np.array_equal(tile.first, tile.second):
                continue
            yield tile


def tile_starts(length: int, config: TilesConfig) -> list[int]:
    """Return where the tiles along a side begin."""
    if length <= config.size:
        return [0]
    step = config.size - config.overlap
    count = math.ceil((length - config.size) / step) + 1
    return [min(number * step, length - config.size) for number in range(count)]


def is_empty(image: RGB) -> bool:
    """Return whether all pixels of an image have one value."""
    return bool((image == image[0, 0]).all())
