"""Find the shift between two images with too few keypoints, by phase correlation.

Kuglin and Hines (1975), as OpenCV does it: a peak of the spectra's phases, which plain boards with
a few edges have, and boards of repeated parts with something that is not repeated. Where all parts
are repeated, several peaks share the energy, and none is taken.
"""

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.images.decode import RGB

MIN_RESPONSE = 0.3
"""Minimum share of the correlation's energy at its peak (ours): of images of other things at most
0.17, of grids of equal parts 0.23, of panels with noise 0.72 or more."""
MIN_CORRELATION = 0.9
"""Minimum correlation of what both images show (ours): a stereo pair has 0.76."""
BLUR = 2.0
"""Standard deviation, in pixels, of the blur before the correlation: noise is no difference."""


def find_shift(first: RGB, second: RGB) -> NDArray[np.float64] | None:
    """Return the matrix from the first image's pixels to the second's, or ``None`` if none fits."""
    import cv2

    height = min(first.shape[0], second.shape[0])
    width = min(first.shape[1], second.shape[1])
    levels: list[NDArray[np.float32]] = []
    for image in (first, second):
        grey = cv2.cvtColor(image[:height, :width], cv2.COLOR_RGB2GRAY)
        levels.append(np.asarray(grey, np.float32))
    taper = cv2.createHanningWindow((width, height), cv2.CV_32F)
    (dx, dy), response = cv2.phaseCorrelate(levels[0], levels[1], taper)
    x, y = round(dx), round(dy)
    if response < MIN_RESPONSE or abs(x) >= width or abs(y) >= height:
        return None
    shared = levels[0][max(-y, 0) : height - max(y, 0), max(-x, 0) : width - max(x, 0)]
    moved = levels[1][max(y, 0) : height - max(-y, 0), max(x, 0) : width - max(-x, 0)]
    blurred = [cv2.GaussianBlur(part, (0, 0), BLUR).ravel() for part in (shared, moved)]
    with np.errstate(invalid="ignore"):  # of a plain image
        correlation = float(np.corrcoef(blurred[0], blurred[1])[0, 1])
    if np.isnan(correlation) or correlation < MIN_CORRELATION:
        return None
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)
