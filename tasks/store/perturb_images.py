"""Perturb images as ImageNet-C does (Hendrycks and Dietterich, 2019): Gaussian noise and fog, in five severities.

    perturb_image(decode_rgb(data), "fog", severity=5, key=image.key)

Paper 001 (A.3) measures captions of such images, at severity 5. The numbers are those of the published generator. It
takes images of 224 pixels; here an image keeps its size, and the fog is as wide as the image: its map has the smallest
power of two that covers the longer side, which at 224 pixels is the generator's 256. What is drawn depends on the key,
the kind and the severity alone, never on the images before.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.images import RGB

Kind = Literal["gaussian-noise", "fog"]
KINDS: tuple[str, ...] = get_args(Kind)
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)
"""Per severity, the standard deviation, of values from 0 to 1."""
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
"""Per severity, how thick the fog is, and by what its swings shrink at each finer scale."""


def perturb_image(image: RGB, kind: Kind, *, severity: int = 5, key: str) -> RGB:
    """Return a perturbed copy of an ``(h, w, 3)`` image.

    Args:
        image: 8 bits per channel.
        kind: one of ``KINDS``.
        severity: 1 to 5.
        key: the image's; the same key gives the same copy.

    Raises:
        ValueError: there is no such kind or severity.
    """
    if kind not in KINDS or not 1 <= severity <= len(NOISE):
        raise ValueError(f"{kind}, severity {severity}: there are {', '.join(KINDS)}, severities 1 to {len(NOISE)}")
    rng = np.random.default_rng(int(make_key("perturb", key, kind, severity), 16))
    values = image / 255.0
    if kind == "gaussian-noise":
        changed = values + rng.normal(scale=NOISE[severity - 1], size=values.shape)
    else:
        thickness, decay = FOG[severity - 1]
        height, width, _ = image.shape
        brightest = values.max()
        fog = draw_plasma(1 << (max(height, width, 2) - 1).bit_length(), decay, rng=rng)[:height, :width, None]
        # An image that is black all over stays so: what is scaled by its brightest value is nothing.
        changed = (values + thickness * fog) * brightest / (brightest + thickness)
    return (np.clip(changed, 0, 1) * 255).astype(np.uint8)


def draw_plasma(side: int, decay: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a fractal map, ``(side, side)`` from 0 to 1, whose edges fit together; by diamonds and squares.

    Each round halves the grid: a new point is the mean of the four around it, plus a swing. The swings shrink by the
    square of ``decay`` with each round, as those of the published generator do.

    Args:
        side: a power of two, 2 or more.
        decay: more than 1; the larger, the smoother.
        rng: what is drawn from.
    """
    heights = np.zeros((side, side))
    step, swing = side, 1.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]

        def between(*points: NDArray[np.float64], swing: float = swing) -> NDArray[np.float64]:
            return sum(points) / len(points) + rng.uniform(-swing, swing, points[0].shape)

        right = np.roll(corners, -1, axis=1)
        middles = between(corners, right, np.roll(corners, -1, axis=0), np.roll(right, -1, axis=0))
        heights[half::step, half::step] = middles
        heights[::step, half::step] = between(corners, right, middles, np.roll(middles, 1, axis=0))
        below = np.roll(corners, -1, axis=0)
        heights[half::step, ::step] = between(corners, below, middles, np.roll(middles, 1, axis=1))
        step, swing = half, swing / decay**2
    heights -= heights.min()
    return heights / heights.max()
