"""Image descriptors without weights: layouts of colours and of edges.

Both squeeze the image to a square, subtract the image's own mean, so that the cosine of unrelated
images is near 0, and take square roots, so that no strong patch dominates. Need OpenCV.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

GRID = 8
"""Cells per side."""
CELL = 16
"""Pixels per side of a cell of gradients in the squeezed image."""
BINS = 9
"""Orientations of gradients, from 0 to 180 degrees."""
NOISE = 0.02
"""Contrast (Sobel, grey values from 0 to 1) below which gradients count as grain and fade out."""


@dataclass(frozen=True)
class Descriptor:
    """Embedder that makes an image's vector when it is prepared."""

    name: str
    dimension: int
    prepare: Callable[[Pixels], Floats]
    version: str = "1"

    def encode(self, prepared: Sequence[Floats]) -> Floats:
        """Return ``(n, dimension)`` vectors of prepared images."""
        vectors = np.array(prepared, dtype=np.float32)
        return vectors.reshape(-1, self.dimension)


def describe_colours(image: Pixels) -> Floats:
    """Return the mean CIE Lab colour of each cell.

    MPEG-7's colour layout descriptor does the same before its transform.
    """
    import cv2

    cells = cv2.resize(image, (GRID, GRID), interpolation=cv2.INTER_AREA)
    scaled = cells.astype(np.float32) / 255
    lab = cv2.cvtColor(scaled, cv2.COLOR_RGB2Lab).reshape(-1, 3)
    centred = lab - lab.mean(axis=0)
    roots = np.sqrt(np.abs(centred))
    signed = np.sign(centred) * roots
    return signed.ravel()


def describe_gradients(image: Pixels) -> Floats:
    """Return each cell's histogram of gradient orientations (HOG).

    It is normalised by the contrast around the cell.
    """
    import cv2

    weights = _cell_weights()
    cells = weights @ find_orientations(image) @ weights.T
    contrast = cv2.GaussianBlur(cells.sum(axis=0), (0, 0), 1)
    normalised = cells / (contrast + NOISE)
    roots = np.sqrt(normalised)
    centred = roots - roots.mean(axis=(1, 2), keepdims=True)
    return centred.ravel()


@cache
def _cell_weights() -> Floats:
    """Return ``(cells, side)``: weights of an axis's pixels in its cells' means after a blur.

    The blur makes the cells change smoothly as an edge moves between them.
    """
    import cv2

    side = GRID * CELL
    pixels = np.eye(side, dtype=np.float32)
    kernel = cv2.getGaussianKernel(4 * CELL + 1, CELL / 2)
    blur = cv2.sepFilter2D(pixels, -1, np.ones(1), kernel)
    by_cell = blur.reshape(GRID, CELL, side)
    return by_cell.mean(axis=1)


def find_orientations(image: Pixels) -> Floats:
    """Return each pixel's gradient, shared by the two nearest orientations.

    The shape is ``(bins, side, side)``.
    """
    import cv2

    side = GRID * CELL
    squeezed = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    levels = cv2.cvtColor(squeezed, cv2.COLOR_RGB2GRAY)
    grey = levels.astype(np.float32) / 255
    across = cv2.Sobel(grey, cv2.CV_32F, 1, 0)
    down = cv2.Sobel(grey, cv2.CV_32F, 0, 1)
    length = np.hypot(across, down)
    orientation = np.arctan2(down, across) / np.pi % 1 * BINS
    lower = orientation.astype(np.int64)
    share = (orientation - lower).astype(np.float32)
    planes = np.zeros((BINS, side, side), dtype=np.float32)
    rows, columns = np.indices((side, side))
    planes[lower % BINS, rows, columns] = length * (1 - share)
    planes[(lower + 1) % BINS, rows, columns] += length * share
    return planes


COLOUR_LAYOUT = Descriptor("colour-layout", 3 * GRID**2, describe_colours)
GRADIENTS = Descriptor("gradients", BINS * GRID**2, describe_gradients)
