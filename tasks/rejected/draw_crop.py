"""Draw a window of an image, for preferences that reject a random crop where no element can be removed (mDPO's way).

Reads and writes nothing. The window shows a share of the image that is drawn from a range, at an aspect of its own
between 3:4 and 4:3; in an image too narrow for it, it is smaller, not longer (ours).
"""

from math import exp, log, sqrt
from random import Random

WIDEST = 4 / 3
Window = tuple[int, int, int, int]


def draw_crop(rng: Random, width: int, height: int, *, area: tuple[float, float]) -> Window | None:
    """Return pixels x0, y0, x1, y1, the last two exclusive; ``None`` where they would be the whole image.

    Args:
        rng: whose draws decide.
        width: of the image.
        height: of the image.
        area: smallest and largest share of the image's pixels.
    """
    pixels = width * height * rng.uniform(*area)
    aspect = exp(rng.uniform(-log(WIDEST), log(WIDEST)))
    sides = sqrt(pixels * aspect), sqrt(pixels / aspect)
    fit = min(1.0, width / sides[0], height / sides[1])
    wide, high = (max(1, round(side * fit)) for side in sides)
    x0, y0 = rng.randint(0, width - wide), rng.randint(0, height - high)
    return None if (wide, high) == (width, height) else (x0, y0, x0 + wide, y0 + high)
