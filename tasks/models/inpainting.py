"""Inpaint holes with Telea's method in OpenCV, without weights (LaMa is in ``lama``).

Reads RGB pixels and a hole, writes RGB pixels; needs OpenCV. An inpainter works in two steps, like a tagger:
``prepare`` may run in other processes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Hole = NDArray[np.bool_]
Window = tuple[int, int, int, int]  # pixels x0, y0, x1, y1, the last two exclusive

RADIUS = 5  # pixels around a point used to fill it
MARGIN = 2 * RADIUS + 2  # pixels around a hole that affect its filling


class Inpainter(Protocol):
    """Model that fills holes."""

    @property
    def version(self) -> str:
        """Identity, which changes with its fillings."""
        ...

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> Any:
        """Return the input of ``fill`` for one hole of the ``(height, width, 3)`` image; picklable.

        ``hole`` is ``(h, w)``, in the window, its bounding box.
        """
        ...

    def fill(self, prepared: Sequence[Any]) -> Iterator[Pixels]:
        """Yield the filled ``(h, w, 3)`` window of each hole; pixels outside the hole are ignored."""
        ...


Surroundings = tuple[Pixels, Hole, tuple[slice, slice]]
"""All pixels that affect the filling of a hole, the hole, and the position of the window in them."""


@dataclass(frozen=True)
class OpenCVInpainter:
    """Inpainter by Telea's fast marching, which uses ``RADIUS`` pixels around."""

    version: str = "telea"

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> Surroundings:
        """Crop the hole's surroundings, which give the same filling as the whole image."""
        x0, y0, x1, y1 = window
        left, top = max(x0 - MARGIN, 0), max(y0 - MARGIN, 0)
        pixels = np.ascontiguousarray(image[top : y1 + MARGIN, left : x1 + MARGIN])
        place = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
        around = np.zeros(pixels.shape[:2], dtype=bool)
        around[place] = hole
        return pixels, around, place

    def fill(self, prepared: Sequence[Surroundings]) -> Iterator[Pixels]:
        """Yield the filled windows; empty holes, and holes without surroundings, stay unchanged."""
        import cv2

        for pixels, hole, place in prepared:
            if hole.any() and not hole.all():
                pixels = cv2.inpaint(pixels, hole.astype(np.uint8), RADIUS, cv2.INPAINT_TELEA)
            yield pixels[place].astype(np.uint8)
