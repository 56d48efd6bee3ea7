"""Image descriptors without weights: layouts of colours and of edges.

Both squeeze the image to a square, subtract the image's own mean, so that the cosine of unrelated images is near 0, and
take square roots, so that no strong patch dominates. Need OpenCV.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

NOISE = 0.02  # contrast (Sobel, grey values from 0 to 1) below which gradients count as grain and fade out


@dataclass(frozen=True)
class ColourLayout:
    """Mean CIE Lab colour of each cell of a grid, like MPEG-7's colour layout descriptor before its transform."""

    name: str = "colour-layout"
    version: str = "1"
    grid: int = 8

    def encode(self, prepared: Sequence[Floats]) -> Floats:
        """Return ``(n, 3 grid^2)`` vectors of prepared images."""
        return np.array(prepared, dtype=np.float32).reshape(-1, 3 * self.grid**2)

    def prepare(self, image: Pixels) -> Floats:
        """Return the image's vector."""
        import cv2

        cells = cv2.resize(image, (self.grid, self.grid), interpolation=cv2.INTER_AREA)
        lab = cv2.cvtColor(cells.astype(np.float32) / 255, cv2.COLOR_RGB2Lab).reshape(-1, 3)
        centred = lab - lab.mean(axis=0)
        return (np.sign(centred) * np.sqrt(np.abs(centred))).ravel()


@dataclass(frozen=True)
class Gradients:
    """Histogram of gradient orientations per cell of a grid (HOG), normalised by the contrast around the cell."""

    name: str = "gradients"
    version: str = "1"
    grid: int = 8
    cell: int = 16  # pixels of a cell in the squeezed image
    bins: int = 9  # orientations from 0 to 180 degrees

    def encode(self, prepared: Sequence[Floats]) -> Floats:
        """Return ``(n, bins grid^2)`` vectors of prepared images."""
        return np.array(prepared, dtype=np.float32).reshape(-1, self.bins * self.grid**2)

    def prepare(self, image: Pixels) -> Floats:
        """Return the image's vector."""
        import cv2

        # Blurring first makes the cells change smoothly as an edge moves between them.
        planes = [cv2.GaussianBlur(plane, (0, 0), self.cell / 2) for plane in self._orientations(image)]
        size = (self.grid, self.grid)
        cells = np.stack([cv2.resize(plane, size, interpolation=cv2.INTER_AREA) for plane in planes])
        contrast = cv2.GaussianBlur(cells.sum(axis=0), (0, 0), 1)
        roots = np.sqrt(cells / (contrast + NOISE))
        return (roots - roots.mean(axis=(1, 2), keepdims=True)).ravel()

    def _orientations(self, image: Pixels) -> Floats:
        """Return ``(bins, side, side)``: each pixel's gradient, shared between the two nearest orientations."""
        import cv2

        side = self.grid * self.cell
        squeezed = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(squeezed, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
        across, down = cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)
        length = np.hypot(across, down)
        place = np.arctan2(down, across) / np.pi % 1 * self.bins
        lower = place.astype(np.int64)
        share = (place - lower).astype(np.float32)
        planes = np.zeros((self.bins, side, side), dtype=np.float32)
        rows, columns = np.indices((side, side))
        planes[lower % self.bins, rows, columns] = length * (1 - share)
        planes[(lower + 1) % self.bins, rows, columns] += length * share
        return planes
