"""Perturb images and texts, as paper 001 (A.3) does to measure the cost of noisy data.

Images as in ImageNet-C (Hendrycks and Dietterich, 2019), with the parameters of its generator for
224 pixels; an image keeps its size, and the fog map has the smallest power of two that covers it.
Random numbers depend on the key and the arguments alone.
"""

import re
from functools import cache
from itertools import count
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import make_key
from pairwright.tasks.images.decode import RGB

Kind = Literal["gaussian-noise", "fog"]
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)  # standard deviation per severity, for values from 0 to 1
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
"""Density of the fog per severity, and decay of its amplitude per finer scale."""
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def perturb_image(image: RGB, kind: Kind, *, severity: int = 5, key: str) -> RGB:
    """Return a perturbed copy of an ``(h, w, 3)`` image, determined by the key."""
    rng = np.random.default_rng(int(make_key("perturb", key, kind, severity), 16))
    values = image / 255.0
    if kind == "gaussian-noise":
        changed = values + rng.normal(scale=NOISE[severity - 1], size=values.shape)
    else:
        thickness, decay = FOG[severity - 1]
        height, width, _ = image.shape
        brightest = values.max()
        fog = draw_plasma(1 << (max(height, width, 2) - 1).bit_length(), decay, rng=rng)[
            :height, :width, None
        ]
        # A black image stays black, as the result is scaled by its brightest value.
        changed = (values + thickness * fog) * brightest / (brightest + thickness)
    return (np.clip(changed, 0, 1) * 255).astype(np.uint8)


def draw_plasma(side: int, decay: float, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a fractal map, ``(side, side)`` from 0 to 1, with matching edges (diamond-square algorithm).

    A new point is the mean of its four neighbours plus a random offset, whose range shrinks by the
    square of ``decay`` with each halving of the grid. ``side`` is a power of two.
    """
    heights = np.zeros((side, side))
    step, swing = side, 1.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]

        def between(*points: NDArray[np.float64], swing: float = swing) -> NDArray[np.float64]:
            return sum(points) / len(points) + rng.uniform(-swing, swing, points[0].shape)

        right = np.roll(corners, -1, axis=1)
        below = np.roll(corners, -1, axis=0)
        middles = between(corners, right, below, np.roll(right, -1, axis=0))
        heights[half::step, half::step] = middles
        heights[::step, half::step] = between(corners, right, middles, np.roll(middles, 1, axis=0))
        heights[half::step, ::step] = between(corners, below, middles, np.roll(middles, 1, axis=1))
        step, swing = half, swing / decay**2
    heights -= heights.min()
    return heights / heights.max()


@cache
def common_words() -> tuple[str, ...]:
    """Return the vocabulary of ``replace_words``."""
    lines = Path(__file__).with_name("common_words.txt").read_text(encoding="utf-8").splitlines()
    return tuple(" ".join(lines[1:]).split())


def replace_words(text: str, share: float, *, key: str) -> str:
    """Return the text with a ``share`` (0 to 1) of its words replaced, rounded half up.

    Words and replacements are drawn uniformly (the paper does not specify); a word never becomes
    itself in another case, and the text between words stays.
    """
    rng, words = (
        np.random.default_rng(int(make_key("replace", key, share, text), 16)),
        common_words(),
    )
    found = len(WORD.findall(text))
    places = (
        set(rng.choice(found, int(share * found + 0.5), replace=False).tolist())
        if found
        else set[int]()
    )
    numbers = count()

    def draw(match: re.Match[str]) -> str:
        if next(numbers) not in places:
            return match[0]
        while (drawn := words[int(rng.integers(len(words)))]).casefold() == match[0].casefold():
            pass
        return drawn

    return WORD.sub(draw, text)
