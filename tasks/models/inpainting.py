"""Fill holes in images from their surroundings: OpenCV's methods, without any weights (LaMa is in ``lama``).

Reads RGB pixels and a hole, writes RGB pixels; needs OpenCV. An inpainter works in two steps, like a tagger:
``prepare`` may run in other processes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Hole = NDArray[np.bool_]
Window = tuple[int, int, int, int]
"""Pixels x0, y0, x1, y1 of an image, the last two exclusive."""

RADIUS = 5
"""Pixels around a point that its filling is made from."""
MARGIN = 2 * RADIUS + 2
"""Pixels around a hole that its filling may depend on."""


class Inpainter(Protocol):
    """Fill holes."""

    @property
    def version(self) -> str:
        """What changes when the same hole would be filled otherwise."""
        ...

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> Any:
        """Return what ``fill`` takes of one hole of the ``(height, width, 3)`` image; can be sent to another process.

        ``hole`` is ``(h, w)``, that of the window: the smallest one with all of it.
        """
        ...

    def fill(self, prepared: Sequence[Any]) -> Iterator[Pixels]:
        """Yield for each hole the ``(h, w, 3)`` pixels of its window, filled; what is no hole in it does not count."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All pixels that the filling of a hole depends on."""

    pixels: Pixels
    hole: Hole
    place: tuple[slice, slice]
    """Where the window is in them."""


@dataclass(frozen=True)
class OpenCVInpainter:
    """Fill holes by Telea's fast marching or by Navier-Stokes; both look only ``RADIUS`` pixels around."""

    method: Literal["telea", "navier-stokes"] = "telea"

    @property
    def version(self) -> str:
        """The method."""
        return self.method

    def prepare(self, image: Pixels, hole: Hole, window: Window) -> Surroundings:
        """Cut out the hole's surroundings; only they are worked on, which changes nothing."""
        x0, y0, x1, y1 = window
        left, top = max(x0 - MARGIN, 0), max(y0 - MARGIN, 0)
        pixels = np.ascontiguousarray(image[top : y1 + MARGIN, left : x1 + MARGIN])
        place = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
        around = np.zeros(pixels.shape[:2], dtype=bool)
        around[place] = hole
        return Surroundings(pixels, around, place)

    def fill(self, prepared: Sequence[Surroundings]) -> Iterator[Pixels]:
        """Yield the filled windows; where there is nothing to fill, or to fill from, the pixels stay."""
        import cv2

        flag = cv2.INPAINT_TELEA if self.method == "telea" else cv2.INPAINT_NS
        for one in prepared:
            if not one.hole.any() or one.hole.all():
                yield one.pixels[one.place].copy()
            else:
                yield cv2.inpaint(one.pixels, one.hole.astype(np.uint8), RADIUS, flag)[one.place].astype(np.uint8)
