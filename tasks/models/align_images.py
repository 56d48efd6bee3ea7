"""Align two photographs of one thing, and find the places that differ between them (ours).

Reads RGB pixels; needs OpenCV, no weights. SIFT's features are matched (Lowe, 2004: ratio test, both ways) and a
homography is fitted to the matches (MAGSAC++). It must verify: enough matches agree with it, they are spread over the
picture, it neither mirrors, folds nor scales much, and the pictures overlap. After that the second picture is laid over
the first, its colours are fitted to the first's by a gain and a smooth surface, and a pixel has changed where nothing
near it in the other picture looks alike: what stands out of the plane is elsewhere in a picture from another viewpoint.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RGB = NDArray[np.uint8]
Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Bits = NDArray[np.bool_]
Corners = tuple[float, float, float, float]
"""Pixels x0, y0, x1, y1 of an image, the last two exclusive."""

FEW_FEATURES, FEW_MATCHES = "too few features to align", "too few features match"
IMPLAUSIBLE, APART = "no plausible homography", "the images overlap too little"
ALL_OVER = "the aligned images differ all over"

SIDE, SMALL_SIDE = 640, 320
"""Longer sides of the pictures in which features are found, and whose pixels are compared."""
MAX_FEATURES, MAX_RATIO, MAX_ERROR = 2000, 0.8, 3.0
"""The last: pixels by which a match that agrees with a homography may be off."""
MIN_INLIERS, MIN_SHARE, MIN_SPREAD = 16, 0.3, 0.1
"""Matches that agree: how many, of all matches, and the share of the picture within their hull."""
MAX_SCALE, MIN_OVERLAP, MAX_CHANGED = 2.0, 0.5, 0.5
"""Factor by which a side may grow or shrink; shares of the picture that is in both, and of that, that may have changed:
where more did, it is not one thing that is seen."""
REACH = 8
"""Pixels of the small pictures around one in which it is looked for in the other."""
ALIKE, MOST_ALIKE = 3.0, 16.0
"""Distance in Lab up to which colours are alike: so much and twice that of three quarters of the pixels, or at most."""
SOFT = 2.0
"""By so much the median pixel is lighter or darker where lightness counts half: under another light, shadows move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """The places in which two aligned images differ, the largest first."""

    places: tuple[tuple[Corners, Corners], ...]
    """Each in pixels of the first and of the second image."""
    shares: tuple[float, ...]
    """How much each is of what both images show."""


def align_images(first: RGB, second: RGB, *, min_area: float) -> Aligned | str:
    """Return the places ``(h, w, 3)`` images differ in, those of a smaller share left out, or why none are known."""
    import cv2

    matrix = find_homography(first, second)
    if isinstance(matrix, str):
        return matrix
    changed, seen = find_changes(first, second, matrix)
    whole = int(seen.sum())
    if whole < MIN_OVERLAP * seen.size:
        return APART
    if changed.sum() > MAX_CHANGED * whole:
        return ALL_OVER
    _, _, stats, _ = cv2.connectedComponentsWithStats(changed.astype(np.uint8), connectivity=8)
    found = sorted((row for row in stats[1:].tolist() if row[4] >= min_area * whole), key=lambda row: -row[4])
    across, down = first.shape[1] / seen.shape[1], first.shape[0] / seen.shape[0]
    places: list[tuple[Corners, Corners]] = []
    for x, y, width, height, _ in found:
        own = (x * across, y * down, (x + width) * across, (y + height) * down)
        there = np.clip(_move(own, matrix), 0, second.shape[1::-1])
        places.append((own, (*there.min(axis=0).tolist(), *there.max(axis=0).tolist())))
    return Aligned(places=tuple(places), shares=tuple(area / whole for *_, area in found))


def find_homography(first: RGB, second: RGB) -> Matrix | str:
    """Return the matrix that takes pixels of the first image to those of the second, or why there is none."""
    import cv2

    (ours, looks), (theirs, others) = _features(first), _features(second)
    if min(len(ours), len(theirs)) < MIN_INLIERS:
        return FEW_FEATURES
    pairs = _match(looks, others)
    if len(pairs) < MIN_INLIERS:
        return FEW_MATCHES
    ours, theirs = ours[pairs[:, 0]], theirs[pairs[:, 1]]
    error = MAX_ERROR * max(max(second.shape[:2]) / SIDE, 1.0)
    fitted, agree = cv2.findHomography(ours, theirs, cv2.USAC_MAGSAC, error, maxIters=5000, confidence=0.999)
    matrix = np.asarray(fitted, np.float64)  # of None, where there is none, no number
    if not np.isfinite(matrix).all():
        return IMPLAUSIBLE
    inliers = ours[agree.ravel() > 0].astype(np.float32)
    if len(inliers) < max(MIN_INLIERS, MIN_SHARE * len(pairs)):
        return FEW_MATCHES
    is_spread = cv2.contourArea(cv2.convexHull(inliers)) >= MIN_SPREAD * first.shape[0] * first.shape[1]
    return matrix if is_spread and is_plausible(matrix, first.shape[:2], second.shape[:2]) else IMPLAUSIBLE


def _features(image: RGB) -> tuple[Matrix, Floats]:
    """Return the places of an image's features ``(n, 2)``, in its own pixels, and what they look like."""
    import cv2

    small = _shrink(image, SIDE)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    found, looks = cv2.SIFT.create(MAX_FEATURES, contrastThreshold=0.02).detectAndCompute(grey, None)
    if not found:
        return np.zeros((0, 2)), np.zeros((0, 128), np.float32)
    places = np.array([one.pt for one in found]) * [image.shape[1] / small.shape[1], image.shape[0] / small.shape[0]]
    # RootSIFT (Arandjelovic and Zisserman, 2012): unit vectors whose inner product is Hellinger's.
    return places, np.sqrt(looks / np.maximum(looks.sum(1, keepdims=True), 1))


def _match(ours: Floats, theirs: Floats) -> NDArray[np.int64]:
    """Return the pairs ``(n, 2)`` of features that are each other's nearest, the second nearest much farther."""
    distances = np.sqrt(np.maximum(2 - 2 * ours @ theirs.T, 0))
    nearest, own = distances.argmin(axis=1), np.arange(len(ours))
    second = np.partition(distances, 1, axis=1)[:, 1]
    is_clear = (distances.argmin(axis=0)[nearest] == own) & (distances[own, nearest] < MAX_RATIO * second)
    return np.stack([own[is_clear], nearest[is_clear]], axis=1)


def is_plausible(matrix: Matrix, size: tuple[int, int], other: tuple[int, int]) -> bool:
    """Say whether a homography is one of two photographs ``(height, width)`` of one thing from about the same place."""
    height, width = size
    sides = np.roll(corners := _move((0, 0, width, height), matrix), -1, axis=0) - corners
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]  # positive: neither mirrored nor folded
    grown = np.linalg.norm(sides, axis=1) / [width, height, width, height] * (max(size) / max(other))
    return bool((turns > 0).all() and (grown < MAX_SCALE).all() and (grown > 1 / MAX_SCALE).all())


def _move(corners: Corners, matrix: Matrix) -> Matrix:
    """Return where a matrix takes the four corners of a box ``(4, 2)``, clockwise."""
    x0, y0, x1, y1 = corners
    moved = np.array([[x0, y0, 1], [x1, y0, 1], [x1, y1, 1], [x0, y1, 1]]) @ matrix.T
    return moved[:, :2] / moved[:, 2:]


def find_changes(first: RGB, second: RGB, matrix: Matrix) -> tuple[Bits, Bits]:
    """Return which pixels ``(h, w)`` of the small first picture have changed, and which of them both pictures show."""
    import cv2

    ours, theirs = _shrink(first, SMALL_SIDE), _shrink(second, SMALL_SIDE)
    size = ours.shape[1::-1]
    down = np.diag([theirs.shape[1] / second.shape[1], theirs.shape[0] / second.shape[0], 1.0])
    laid = down @ matrix @ np.diag([first.shape[1] / size[0], first.shape[0] / size[1], 1.0])
    warped = cv2.warpPerspective(theirs, laid, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    inside = np.full(theirs.shape[:2], 255, np.uint8)
    inside = cv2.warpPerspective(inside, laid, size, flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP)
    seen = cv2.erode(inside, np.ones((5, 5), np.uint8), borderValue=0) > 0
    if not seen.any():
        return seen, seen
    one = _lab(ours)
    other = _fit_light(one, _lab(np.asarray(warped, np.uint8)), seen)
    off = float(np.median(np.abs(one - other)[seen][:, 0]))
    weights = np.array([1 / (1 + off / SOFT), 1, 1], np.float32)
    far = np.maximum(_distance(one * weights, other * weights), _distance(other * weights, one * weights))
    limit = min(ALIKE + 2 * float(np.percentile(far[seen], 75)), MOST_ALIKE)
    changed = cv2.morphologyEx(((far > limit) & seen).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    changed = cv2.morphologyEx(changed, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9)))
    return (changed > 0) & seen, seen


def _lab(image: RGB) -> Floats:
    import cv2

    lab = cv2.cvtColor(image.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2LAB)
    return np.asarray(cv2.GaussianBlur(lab, (0, 0), 1.0), np.float32)


def _fit_light(ours: Floats, theirs: Floats, seen: Bits) -> Floats:
    """Return the second picture in the light of the first, fitted again and again with what is off counting little."""
    y, x = (place.astype(np.float32) / size for place, size in zip(np.indices(seen.shape), seen.shape, strict=True))
    surface = [np.ones_like(x), x, y, x * x, y * y, x * y]
    fitted = theirs.copy()
    for channel in range(3):
        terms = np.stack([theirs[..., channel], *surface], axis=-1)
        known, wanted = terms[seen], ours[seen][:, channel]
        weights = np.ones_like(wanted)
        for _ in range(5):
            solution = np.linalg.lstsq(known * weights[:, None], wanted * weights, rcond=None)[0]
            errors = np.abs(known @ solution - wanted)
            weights = 1 / (1 + (errors / max(3 * float(np.median(errors)), 2.0)) ** 2)
            fitted[..., channel] = terms @ solution
    return fitted


def _distance(ours: Floats, theirs: Floats) -> Floats:
    """Return how far each pixel's neighbourhood is from the most alike one near it in the other picture."""
    import cv2

    height, width = ours.shape[:2]
    padded = cv2.copyMakeBorder(theirs, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    least = np.full((height, width), np.inf, np.float32)
    for down in range(0, 2 * REACH + 1, 2):
        for right in range(0, 2 * REACH + 1, 2):
            gap = padded[down : down + height, right : right + width] - ours
            np.minimum(least, cv2.boxFilter(np.sqrt((gap * gap).sum(axis=2)), -1, (5, 5)), out=least)
    return least


def _shrink(image: RGB, side: int) -> RGB:
    height, width = image.shape[:2]
    scale = min(side / max(height, width), 1.0)
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX))
