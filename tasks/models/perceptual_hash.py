"""Perceptual hash of low frequencies (pHash), which finds near-identical images; stored as a vector.

The hash is that of ``imagehash.phash``, with OpenCV's resizing. A set bit is 1/8 and a clear one -1/8: hashes that
differ in ``d`` of 64 bits have a cosine of exactly ``1 - d / 32``, also in float16.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NAME = "perceptual-hash"
BITS, SIDE, LOW = 64, 32, 8


@dataclass(frozen=True)
class PerceptualHash:
    """Hash as an embedder; an image of one flat colour has no frequencies and gets the zero vector."""

    name: str = NAME
    version: str = "1"
    dimension: int = BITS

    def prepare(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the vector of an ``(h, w, 3)`` RGB image."""
        import cv2

        small = cv2.resize(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        if small.min() == small.max():
            return np.zeros(BITS, dtype=np.float32)
        low = cv2.dct(small.astype(np.float64))[:LOW, :LOW].ravel()
        return np.where(low > np.median(low), 0.125, -0.125).astype(np.float32)

    def encode(self, prepared: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return ``(n, 64)`` vectors of prepared images."""
        return np.array(prepared, dtype=np.float32).reshape(-1, BITS)


def count_differing_bits(hashes: NDArray[np.float16], other: NDArray[np.float16]) -> NDArray[np.int64]:
    """Return how many bits of each of ``(n, 64)`` hashes differ from another; 32 for a flat image."""
    cosines = hashes.astype(np.float64) @ other.astype(np.float64)
    return np.rint((1 - cosines) * BITS / 2).astype(np.int64)
