"""Fill holes in images from their surroundings, without any weights.

Reads RGB pixels and a hole, writes RGB pixels; needs OpenCV.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Hole = NDArray[np.bool_]

RADIUS = 5
"""Pixels around a point that its filling is made from."""


class Inpainter(Protocol):
    """Fill a hole."""

    def fill(self, image: Pixels, hole: Hole) -> Pixels:
        """Return the ``(h, w, 3)`` image with the ``(h, w)`` hole filled and everything else as it was."""
        ...


@dataclass(frozen=True)
class OpenCVInpainter:
    """Fill holes by Telea's fast marching or by Navier-Stokes; both look only ``RADIUS`` pixels around."""

    method: Literal["telea", "navier-stokes"] = "telea"

    def fill(self, image: Pixels, hole: Hole) -> Pixels:
        """Return the image with the hole filled; only the hole's surroundings are worked on."""
        import cv2

        if not hole.any() or hole.all():
            return image.copy()
        flag = cv2.INPAINT_TELEA if self.method == "telea" else cv2.INPAINT_NS
        window = _surroundings(hole)
        patch, inside = np.ascontiguousarray(image[window]), hole[window]
        filled = cv2.inpaint(patch, inside.astype(np.uint8), RADIUS, flag)
        made = image.copy()
        made[window][inside] = filled[inside]
        return made


def _surroundings(hole: Hole) -> tuple[slice, slice]:
    """Return the window of all pixels that the filling may depend on."""
    margin = 2 * RADIUS + 2
    rows, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
    return (
        slice(max(rows[0] - margin, 0), rows[-1] + margin + 1),
        slice(max(columns[0] - margin, 0), columns[-1] + margin + 1),
    )
