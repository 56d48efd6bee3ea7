"""Align two photographs of one place, and find what changed between them (ours).

Reads RGB pixels; needs OpenCV, no weights. SIFT features are matched (RootSIFT: Arandjelović and
Zisserman, 2012; Lowe's ratio test, both ways), and a homography is fitted to the matches (MAGSAC:
Barath et al., 2019). It must hold for many matches, spread over the image. The second image is then
warped onto the first, and focus and light are made equal: by a blur, and by a gain and a smooth
surface per channel. A pixel has changed if no pixel near it in the other image looks alike: from
another viewpoint, what stands out of the plane is displaced.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.images.scale import scale_down

Floats = NDArray[np.float32]
Matrix = NDArray[np.floating[Any]]
Bits = NDArray[np.bool_]
Corners = tuple[float, float, float, float]
"""Pixels x0, y0, x1, y1 of an image, the last two exclusive."""

TOO_PLAIN = "too few features to align"
NO_MATCH = "too few features match"
NO_OVERLAP = "the images overlap too little"
ALL_OVER = "the images differ all over"

FEATURE_SIDE = 640
"""Maximum longer side, in pixels, of the images in which features are found."""
SIDE = 320
"""Maximum longer side, in pixels, of the images that are compared."""
MAX_FEATURES = 2000
MAX_RATIO = 0.8
"""Maximum distance of a feature to its match, as a share of that to the next."""
MAX_ERROR = 3.0
"""Maximum error of a match that agrees with the homography, in pixels of the scaled image."""
MIN_AGREEING = 16
MIN_AGREEING_SHARE = 0.3
ONE_VIEWPOINT = 0.8
"""Minimum share of the matches that agree, of two images from one viewpoint."""
MIN_SPREAD = 0.1
"""Minimum share of the image in the hull of the agreeing matches."""
MIN_OVERLAP = 0.5
"""Minimum share of the first image that the second one shows."""
MAX_CHANGED = 0.5
"""Maximum share of the overlap that changed; beyond it, the images do not show one place."""
REACH = 8
"""Maximum displacement of a like pixel, in pixels of the scaled image."""
MIN_DISTANCE = 3.0
MAX_DISTANCE = 16.0
"""Distance in CIE Lab from which a pixel differs: ``MIN_DISTANCE`` and twice the third quartile of
all distances, at most ``MAX_DISTANCE``."""
GRID = 24
"""Points per side at which a box is compared."""
BLURS = (0.4, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)
"""Standard deviations, in pixels of the scaled image, at which the sharper image is blurred."""
CLIPPED = 254
"""Level from which a channel may have been brighter."""
LIGHT_SHIFT = 2.0
"""Median difference in lightness at which lightness counts half: shadows move with the light."""


@dataclass(frozen=True, slots=True)
class Place:
    """Changed place."""

    box: Corners
    """In pixels of the first image."""
    share: float
    """Share of the overlap of both images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """What changed between two aligned images."""

    places: tuple[Place, ...]
    """The largest first."""
    changed: Bits
    """``(h, w)``, of the first image, scaled down: what changed, or what only one image shows."""
    to_changed: tuple[Matrix, Matrix]
    """Homographies from the pixels of each image to those of ``changed``."""
    agreement: float
    """Share of matching features that agree with the homography: 0.9 or more from one viewpoint;
    0.5 of a stereo pair."""

    @property
    def has_one_viewpoint(self) -> bool:
        """Return whether both images have one viewpoint, so that no thing is displaced."""
        return self.agreement >= ONE_VIEWPOINT

    def changed_share(self, side: int, box: Corners) -> float:
        """Return the share of a box in one image (0 or 1) that changed."""
        x0, y0, x1, y1 = box
        columns, rows = np.meshgrid(np.linspace(x0, x1, GRID), np.linspace(y0, y1, GRID))
        points = np.stack([columns.ravel(), rows.ravel()], axis=1)
        x, y = np.floor(_transform(points, self.to_changed[side])).astype(int).T
        height, width = self.changed.shape
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        unchanged = ~self.changed[y[inside], x[inside]]
        return 1 - float(unchanged.sum()) / len(points)


def align_images(first: RGB, second: RGB, *, min_area: float) -> Aligned | str:
    """Return what changed between two images, or why they cannot be aligned.

    ``min_area``: smaller changed places, as a share of the overlap, are left out.
    """
    fitted = find_homography(first, second)
    if isinstance(fitted, str):
        return fitted
    homography, agreement = fitted
    small = scale_down(first, SIDE)
    to_small = _scaling(first, small)
    to_second = homography @ np.linalg.inv(to_small)
    other, overlap = _warp(second, to_second, small.shape[:2])
    area = int(overlap.sum())
    if area < MIN_OVERLAP * overlap.size:
        return NO_OVERLAP
    differing = find_differing(small, other, overlap)
    if differing.sum() > MAX_CHANGED * area:
        return ALL_OVER
    places, changed = _find_places(differing, min_area, area, to_small)
    return Aligned(
        places=places,
        changed=changed | ~overlap,
        to_changed=(to_small, np.linalg.inv(to_second)),
        agreement=agreement,
    )


def find_homography(first: RGB, second: RGB) -> tuple[Matrix, float] | str:
    """Return the matrix from the first image's pixels to the second's, or why there is none.

    With it the share of the matching features that agree with it.
    """
    import cv2

    points, descriptors = _find_features(first)
    others, other_descriptors = _find_features(second)
    if min(len(points), len(others)) < MIN_AGREEING:
        return TOO_PLAIN
    matches, other_matches = _match(descriptors, other_descriptors)
    if len(matches) < MIN_AGREEING:
        return NO_MATCH
    points, others = points[matches], others[other_matches]
    error = MAX_ERROR * max(1.0, max(second.shape) / FEATURE_SIDE)
    fitted: Any
    fitted, agreeing = cv2.findHomography(points, others, cv2.USAC_MAGSAC, error, None, 5000, 0.999)
    if fitted is None or not np.isfinite(fitted).all() or np.linalg.det(fitted) == 0:
        return NO_MATCH
    points = points[agreeing.ravel() > 0].astype(np.float32)
    if len(points) < max(MIN_AGREEING, MIN_AGREEING_SHARE * len(matches)):
        return NO_MATCH
    spread = cv2.contourArea(cv2.convexHull(points)) / (first.shape[0] * first.shape[1])
    if spread < MIN_SPREAD:
        return NO_MATCH
    return np.asarray(fitted, np.float64), len(points) / len(matches)


def _find_features(image: RGB) -> tuple[Matrix, Floats]:
    """Return the positions of an image's features ``(n, 2)``, and their RootSIFT vectors."""
    import cv2

    small = scale_down(image, FEATURE_SIDE)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    detector = cv2.SIFT.create(MAX_FEATURES, contrastThreshold=0.02)
    descriptors: Any
    features, descriptors = detector.detectAndCompute(grey, None)
    if descriptors is None:
        return np.zeros((0, 2)), np.zeros((0, 128), np.float32)
    positions = np.array([feature.pt for feature in features])
    to_image = np.linalg.inv(_scaling(image, small))
    sums = descriptors.sum(axis=1, keepdims=True)
    return _transform(positions, to_image), np.sqrt(descriptors / np.maximum(sums, 1))


def _match(left: Floats, right: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the matching rows of both: each other's nearest, clearly nearer than the next."""
    distances = np.sqrt(np.maximum(2 - 2 * left @ right.T, 0))
    nearest = distances.argmin(axis=1)
    best, next_best = np.partition(distances, 1, axis=1)[:, :2].T
    is_mutual = distances.argmin(axis=0)[nearest] == np.arange(len(left))
    matches = np.flatnonzero(is_mutual & (best < MAX_RATIO * next_best))
    return matches, nearest[matches]


def _warp(image: RGB, matrix: Matrix, size: tuple[int, int]) -> tuple[RGB, Bits]:
    """Return an image warped to ``(height, width)``, and where it has pixels.

    ``matrix`` leads from the warped pixels to those of the image.
    """
    import cv2

    small = scale_down(image, SIDE)
    to_small = _scaling(image, small) @ matrix
    height, width = size
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    warped = cv2.warpPerspective(small, to_small, (width, height), flags=flags)
    whole = np.full(small.shape[:2], 255, np.uint8)
    inside = cv2.warpPerspective(whole, to_small, (width, height), flags=flags)
    overlap = cv2.erode(inside, np.ones((5, 5), np.uint8), borderValue=0) == 255
    return np.asarray(warped, np.uint8), overlap


def find_differing(first: RGB, second: RGB, overlap: Bits) -> Bits:
    """Return which pixels of two aligned images of equal size differ, within their overlap."""
    import cv2

    sharp = _equalise_focus(first.astype(np.float32), second.astype(np.float32), overlap)
    ours, theirs = (_to_lab(levels) for levels in _equalise_light(*sharp, overlap))
    shift = float(np.median(np.abs(ours - theirs)[overlap][:, 0]))
    weights = np.array([1 / (1 + shift / LIGHT_SHIFT), 1, 1], np.float32)
    ours, theirs = ours * weights, theirs * weights
    distances = np.maximum(_find_nearest(ours, theirs), _find_nearest(theirs, ours))
    usual = float(np.percentile(distances[overlap], 75))
    bound = min(MIN_DISTANCE + 2 * usual, MAX_DISTANCE)
    differing = ((distances > bound) & overlap).astype(np.uint8)
    differing = cv2.morphologyEx(differing, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))
    differing = cv2.morphologyEx(differing, cv2.MORPH_CLOSE, disc)
    return (differing > 0) & overlap


def _to_lab(image: Floats) -> Floats:
    """Return an image of RGB levels in CIE Lab, slightly blurred."""
    import cv2

    lab = cv2.cvtColor(image / np.float32(255), cv2.COLOR_RGB2LAB)
    return np.asarray(cv2.GaussianBlur(lab, (0, 0), 1.0), np.float32)


def _equalise_focus(first: Floats, second: Floats, overlap: Bits) -> tuple[Floats, Floats]:
    """Return both images equally sharp: the sharper one blurred."""
    import cv2

    goal = min(_sharpness(first, overlap), _sharpness(second, overlap))
    images: list[Floats] = []
    for image in (first, second):
        blurred = [image]
        for sigma in BLURS:
            blurred.append(np.asarray(cv2.GaussianBlur(image, (0, 0), sigma), np.float32))
        images.append(min(blurred, key=lambda levels: abs(_sharpness(levels, overlap) - goal)))
    return images[0], images[1]


def _sharpness(image: Floats, overlap: Bits) -> float:
    """Return the mean of the Laplacian, relative to the contrast: the same in any light."""
    import cv2

    grey = image.mean(axis=2)
    edges = np.abs(cv2.Laplacian(grey, cv2.CV_32F))[overlap]
    return float(edges.mean()) / max(float(grey[overlap].std()), 1.0)


def _equalise_light(first: Floats, second: Floats, overlap: Bits) -> tuple[Floats, Floats]:
    """Return both images in one light.

    Each channel is fitted to that of the brighter image, where white places have lost levels.
    """
    ours, theirs = first.copy(), second.copy()
    for channel in range(3):
        mine, other = ours[..., channel], theirs[..., channel]
        if mine[overlap].mean() > other[overlap].mean():
            theirs[..., channel] = _fit_light(other, mine, overlap)
        else:
            ours[..., channel] = _fit_light(mine, other, overlap)
    return ours, theirs


def _fit_light(channel: Floats, target: Floats, overlap: Bits) -> Floats:
    """Return a channel in the light of another image's: a gain and a quadratic surface.

    Fitted by least squares to every fifth pixel, five times, with less weight on what differs.
    """
    height, width = overlap.shape
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x, y = x / width, y / height
    terms = np.stack([channel / 255, np.ones_like(x), x, y, x * x, y * y, x * y], axis=-1)
    usable = overlap & (target < CLIPPED)
    usable_terms = terms[usable][::5]
    goal = target[usable][::5]
    weights = np.ones_like(goal)
    solution = np.zeros(terms.shape[-1], np.float32)
    for _ in range(5):
        solution = np.linalg.lstsq(usable_terms * weights[:, None], goal * weights, rcond=None)[0]
        errors = np.abs(usable_terms @ solution - goal)
        scale = max(3 * float(np.median(errors)), 3.0)
        weights = 1 / (1 + (errors / scale) ** 2)
    return np.clip(terms @ solution, 0, 255).astype(np.float32)


def _find_nearest(ours: Floats, theirs: Floats) -> Floats:
    """Return the distance of each pixel's neighbourhood to the most alike one within reach."""
    import cv2

    height, width = ours.shape[:2]
    padded = cv2.copyMakeBorder(theirs, REACH, REACH, REACH, REACH, cv2.BORDER_REPLICATE)
    nearest = np.full((height, width), np.inf, np.float32)
    for top in range(0, 2 * REACH + 1, 2):
        for left in range(0, 2 * REACH + 1, 2):
            gap = padded[top : top + height, left : left + width] - ours
            lightness, red, blue = cv2.split(gap * gap)
            distances = cv2.boxFilter(np.sqrt(lightness + red + blue), -1, (5, 5))
            np.minimum(nearest, distances, out=nearest)
    return nearest


def _find_places(
    differing: Bits, min_area: float, area: int, to_small: Matrix
) -> tuple[tuple[Place, ...], Bits]:
    """Return the connected places of at least a share of the overlap's pixels, and their pixels."""
    import cv2

    _, labels, stats, _ = cv2.connectedComponentsWithStats(differing.astype(np.uint8))
    large = [label for label in range(1, len(stats)) if stats[label, 4] >= min_area * area]
    large.sort(key=lambda label: -int(stats[label, 4]))
    places: list[Place] = []
    for label in large:
        x, y, width, height, pixels = stats[label].tolist()
        corners = np.array([[x, y], [x + width, y + height]], np.float64)
        (x0, y0), (x1, y1) = _transform(corners, np.linalg.inv(to_small)).tolist()
        places.append(Place((x0, y0, x1, y1), pixels / area))
    return tuple(places), np.isin(labels, large)


def _scaling(image: RGB, scaled: RGB) -> Matrix:
    """Return the matrix from an image's pixels to those of its scaled copy."""
    height, width = image.shape[:2]
    return np.diag([scaled.shape[1] / width, scaled.shape[0] / height, 1.0])


def _transform(points: Matrix, matrix: Matrix) -> Matrix:
    """Return where a homography takes points ``(n, 2)``."""
    import cv2

    return np.asarray(cv2.perspectiveTransform(points[None], matrix)[0], np.float64)
