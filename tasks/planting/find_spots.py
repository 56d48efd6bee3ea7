"""Find spots of a photograph where a planted thing is plausible: plain ones, larger things below.

Reads and writes nothing. Ours: the shares and the measure of texture.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.scenes.pictures import Rng

THING_HEIGHT = 0.7  # metres of the toy world: of a medium thing
HEIGHT_SHARE = 0.17
"""Height of a medium thing in the middle of a photograph, as a share of its shorter side."""
NEARNESS = (0.8, 1.2)
"""Factors of a thing's size at the top and at the bottom of a photograph."""
ROWS = (0.35, 0.95)  # range of feet, as shares of the height
BOX_WIDTH = 1.3
BOX_HEIGHT = 1.45
"""Free space of a spot in metres: the largest thing, with the beginning of its shadow."""
BELOW = 0.25  # of the free space, in metres, before the foot
MARGIN = 0.02  # between the free space and the photograph's border, as a share of the shorter side
DRAWS = 400
PLAINER_THAN = 0.5
"""A spot has less texture than this share of all that were drawn."""
MAX_SPOTS = 6
CHOICES = 4  # choices of spots, of which the one with most is taken
Box = tuple[int, int, int, int]
"""Pixels x0, y0, x1, y1, the last two exclusive."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Position of a thing in a photograph."""

    x: int
    """Column of its foot's middle, in pixels."""
    y: int
    """Row of its foot's middle, in pixels."""
    scale: float
    """Pixels per metre of the toy world."""

    @property
    def box(self) -> Box:
        """Return the free space: pixels x0, y0, x1, y1, the last two exclusive."""
        half = BOX_WIDTH / 2 * self.scale
        top = self.y - (BOX_HEIGHT - BELOW) * self.scale
        bottom = self.y + BELOW * self.scale
        return round(self.x - half), round(top), round(self.x + half), round(bottom)


def find_spots(photograph: RGB, rng: Rng, *, avoided: Sequence[Box] = ()) -> list[Spot]:
    """Return up to ``MAX_SPOTS`` plain spots, in random order.

    Their boxes overlap neither each other nor one of those to avoid.
    """
    texture = measure_texture(photograph)
    height, width = texture.shape
    drawn: list[tuple[float, Spot]] = []
    for _ in range(DRAWS):
        spot = _draw_spot(rng, width, height)
        is_free = not any(_overlap(spot.box, box) for box in avoided)
        if is_free and _is_inside(spot, width, height):
            drawn.append((_mean_in(texture, spot.box), spot))
    drawn.sort(key=lambda scored: scored[0])
    plain = [spot for _, spot in drawn[: round(len(drawn) * PLAINER_THAN)]]
    choices = [_choose_apart(plain, rng) for _ in range(CHOICES)]
    return max(choices, key=len)


def _choose_apart(spots: Sequence[Spot], rng: Rng) -> list[Spot]:
    """Return spots whose boxes do not overlap, taken in random order."""
    chosen: list[Spot] = []
    for index in rng.permutation(len(spots)):
        spot = spots[int(index)]
        is_free = not any(_overlap(spot.box, other.box) for other in chosen)
        if is_free and len(chosen) < MAX_SPOTS:
            chosen.append(spot)
    return chosen


def measure_texture(photograph: RGB) -> NDArray[np.float64]:
    """Return the gradient's length at each pixel, ``(h, w)``, in levels of 255."""
    grey = cv2.cvtColor(photograph, cv2.COLOR_RGB2GRAY)
    across = cv2.Sobel(grey, cv2.CV_32F, 1, 0)
    down = cv2.Sobel(grey, cv2.CV_32F, 0, 1)
    return np.hypot(across, down).astype(np.float64)


def _draw_spot(rng: Rng, width: int, height: int) -> Spot:
    row = float(rng.uniform(*ROWS))
    side = min(width, height)
    smallest, largest = NEARNESS
    nearness = smallest + (largest - smallest) * row
    scale = HEIGHT_SHARE * side / THING_HEIGHT * nearness
    return Spot(int(rng.integers(width)), round(row * height), scale)


def _is_inside(spot: Spot, width: int, height: int) -> bool:
    rim = MARGIN * min(width, height)
    x0, y0, x1, y1 = spot.box
    return x0 >= rim and y0 >= rim and x1 <= width - rim and y1 <= height - rim


def _mean_in(values: NDArray[np.float64], box: Box) -> float:
    x0, y0, x1, y1 = box
    return float(values[y0:y1, x0:x1].mean())


def _overlap(box: Box, other: Box) -> bool:
    ax0, ay0, ax1, ay1 = box
    bx0, by0, bx1, by1 = other
    return ax0 < bx1 and bx0 < ax1 and ay0 < by1 and by0 < ay1
