"""Perceptual hash of low frequencies (pHash), stored as a vector; finds near-identical images.

The hash is that of ``imagehash.phash``, with OpenCV's resizing. A set bit is 1/8 and a clear one
-1/8: hashes that differ in ``d`` of 64 bits have a cosine of exactly ``1 - d / 32``, also in
float16.
"""

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.descriptors import Descriptor

NAME = "perceptual-hash"
BITS = 64
SIDE = 32
"""Pixels per side of the image that is hashed."""
LOW = 8
"""Frequencies per axis."""


def hash_image(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the hash of an ``(h, w, 3)`` RGB image.

    Of one flat colour, without frequencies, it is the zero vector.
    """
    import cv2

    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    small = cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    if small.min() == small.max():
        return np.zeros(BITS, dtype=np.float32)
    frequencies = cv2.dct(small.astype(np.float64))
    low = frequencies[:LOW, :LOW].ravel()
    is_set = low > np.median(low)
    return np.where(is_set, 0.125, -0.125).astype(np.float32)


PERCEPTUAL_HASH = Descriptor(NAME, BITS, hash_image)


def count_differing_bits(
    hashes: NDArray[np.float16],
    other: NDArray[np.float16],
) -> NDArray[np.int64]:
    """Return how many bits of ``(n, 64)`` hashes differ from another; 32 for a flat image."""
    cosines = hashes.astype(np.float64) @ other.astype(np.float64)
    distances = (1 - cosines) * BITS / 2
    return np.rint(distances).astype(np.int64)
