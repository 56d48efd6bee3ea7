"""Measure how far pixels are from a mask, to the last digit.

Reads and writes nothing; needs OpenCV. Its distances are a few roundings off, and with one thread not the same ones at
each call. Squares of distances between pixels are whole numbers, which puts that right.
"""

import numpy as np
from numpy.typing import NDArray


def measure_distance(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the distance of each pixel of ``(h, w)`` from the mask, in pixels: 0 in it; the same at every call.

    Beyond a thousand pixels the last digits are OpenCV's again. Of an empty mask everything is far away.
    """
    import cv2

    found = cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    distance = np.asarray(found, np.float32)
    with np.errstate(over="ignore"):
        np.square(distance, out=distance)
    np.rint(distance, out=distance)
    return np.sqrt(distance, out=distance)
