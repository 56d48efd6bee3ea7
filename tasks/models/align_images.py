"""Align two photographs of one thing, and find the regions that differ between them (ours).

Reads RGB pixels; needs OpenCV, no weights. SIFT features are matched (Lowe, 2004: ratio test, both ways), and a
homography is fitted to the matches (MAGSAC++). It is accepted if enough matches agree, spread over the picture, if it
neither mirrors, folds nor scales much, and if the pictures overlap. Then the second picture is warped onto the first,
its colours are fitted by a gain and a smooth surface, and a pixel counts as changed if no nearby pixel in the other
picture is similar: parallax moves what stands out of the plane.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

RGB = NDArray[np.uint8]
Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]
Bits = NDArray[np.bool_]
Corners = tuple[float, float, float, float]  # pixels x0, y0, x1, y1, the last two exclusive

FEW_FEATURES, FEW_MATCHES = "too few features to align", "too few features match"
IMPLAUSIBLE, APART = "no plausible homography", "the images overlap too little"
ALL_OVER = "the aligned images differ all over"

SIDE, SMALL_SIDE = 640, 320  # longer sides of the pictures for features, and for comparing pixels
MAX_FEATURES, MAX_RATIO, MAX_ERROR = 2000, 0.8, 3.0  # the last: pixel error of a match that agrees with a homography
MIN_INLIERS, MIN_SHARE, MIN_SPREAD = 16, 0.3, 0.1
"""Agreeing matches: number, share of all matches, share of the picture in their hull."""
MAX_SCALE, MIN_OVERLAP, MAX_CHANGED = 2.0, 0.5, 0.5
"""Scaling of a side; share of the picture in both; changed share of that, above which the things differ."""
REACH = 8  # search radius of similar pixels in the small pictures
ALIKE, MOST_ALIKE = 3.0, 16.0  # lab distance of similar colours: so much plus twice the upper quartile; and its maximum
SOFT = 2.0  # median change of lightness at which lightness counts half: shadows move with the light


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """Regions in which two aligned images differ, the largest first."""

    places: tuple[tuple[Corners, Corners], ...]  # in pixels of the first and of the second image
    shares: tuple[float, ...]  # their shares of the common area


def align_images(first: RGB, second: RGB, *, min_area: float) -> Aligned | str:
    """Return the regions in which ``(h, w, 3)`` images differ, from ``min_area`` on, or why they are unknown."""
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
        there = np.clip(_transform_corners(own, matrix), 0, second.shape[1::-1])
        places.append((own, (*there.min(axis=0).tolist(), *there.max(axis=0).tolist())))
    return Aligned(places=tuple(places), shares=tuple(area / whole for *_, area in found))


def find_homography(first: RGB, second: RGB) -> Matrix | str:
    """Return the matrix from pixels of the first image to those of the second, or why there is none."""
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
    matrix = np.asarray(fitted, np.float64)  # None becomes NaN
    if not np.isfinite(matrix).all():
        return IMPLAUSIBLE
    inliers = ours[agree.ravel() > 0].astype(np.float32)
    if len(inliers) < max(MIN_INLIERS, MIN_SHARE * len(pairs)):
        return FEW_MATCHES
    is_spread = cv2.contourArea(cv2.convexHull(inliers)) >= MIN_SPREAD * first.shape[0] * first.shape[1]
    return matrix if is_spread and is_plausible(matrix, first.shape[:2], second.shape[:2]) else IMPLAUSIBLE


def _features(image: RGB) -> tuple[Matrix, Floats]:
    """Return the positions ``(n, 2)`` of an image's features, in its own pixels, and their descriptors."""
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
    """Return pairs ``(n, 2)`` of mutually nearest features that pass the ratio test."""
    distances = np.sqrt(np.maximum(2 - 2 * ours @ theirs.T, 0))
    nearest, own = distances.argmin(axis=1), np.arange(len(ours))
    second = np.partition(distances, 1, axis=1)[:, 1]
    is_clear = (distances.argmin(axis=0)[nearest] == own) & (distances[own, nearest] < MAX_RATIO * second)
    return np.stack([own[is_clear], nearest[is_clear]], axis=1)


def is_plausible(matrix: Matrix, size: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether a homography fits two photographs ``(height, width)`` from about the same viewpoint."""
    height, width = size
    sides = np.roll(corners := _transform_corners((0, 0, width, height), matrix), -1, axis=0) - corners
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]  # positive: neither mirrored nor folded
    grown = np.linalg.norm(sides, axis=1) / [width, height, width, height] * (max(size) / max(other))
    return bool((turns > 0).all() and (grown < MAX_SCALE).all() and (grown > 1 / MAX_SCALE).all())


def _transform_corners(corners: Corners, matrix: Matrix) -> Matrix:
    """Return the transformed corners of a box ``(4, 2)``, clockwise."""
    x0, y0, x1, y1 = corners
    moved = np.array([[x0, y0, 1], [x1, y0, 1], [x1, y1, 1], [x0, y1, 1]]) @ matrix.T
    return moved[:, :2] / moved[:, 2:]


def find_changes(first: RGB, second: RGB, matrix: Matrix) -> tuple[Bits, Bits]:
    """Return which pixels ``(h, w)`` of the small first picture have changed, and which both pictures show."""
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
    """Return the second picture in the light of the first, by iteratively reweighted least squares."""
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
    """Return the distance of each pixel's neighbourhood to the most similar one near it in the other picture."""
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
