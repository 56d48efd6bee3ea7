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

Floats = NDArray[np.float64]
Kind = Literal["gaussian-noise", "fog"]
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)
"""Standard deviation per severity, for values from 0 to 1."""
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
"""Density of the fog per severity, and decay of its amplitude per finer scale."""
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def perturb_image(
    image: RGB,
    kind: Kind,
    *,
    severity: int = 5,
    key: str,
) -> RGB:
    """Return a perturbed copy of an ``(h, w, 3)`` image, determined by the key."""
    rng = _generator("perturb", key, kind, severity)
    values = image / 255.0
    if kind == "gaussian-noise":
        deviation = NOISE[severity - 1]
        changed = values + rng.normal(scale=deviation, size=values.shape)
    else:
        changed = _add_fog(values, severity, rng)
    levels = np.clip(changed, 0, 1) * 255
    return levels.astype(np.uint8)


def _generator(*parts: str | float) -> np.random.Generator:
    """Return random numbers that depend on the parts alone."""
    seed = int(make_key(*parts), 16)
    return np.random.default_rng(seed)


def _add_fog(
    values: Floats,
    severity: int,
    rng: np.random.Generator,
) -> Floats:
    """Return an image of values from 0 to 1 in fog.

    A black image stays black, as the result is scaled by its brightest value.
    """
    thickness, decay = FOG[severity - 1]
    height, width, _ = values.shape
    last = max(height, width, 2) - 1
    side = 1 << last.bit_length()
    brightest = values.max()
    plasma = draw_plasma(side, decay, rng=rng)
    fog = plasma[:height, :width, None]
    foggy = (values + thickness * fog) * brightest
    return foggy / (brightest + thickness)


def draw_plasma(
    side: int,
    decay: float,
    *,
    rng: np.random.Generator,
) -> Floats:
    """Return a fractal map, ``(side, side)`` from 0 to 1, with matching edges (diamond-square).

    A new point is the mean of its four neighbours plus a random offset, whose range shrinks by the
    square of ``decay`` with each halving of the grid. ``side`` is a power of two.
    """
    heights = np.zeros((side, side))
    step = side
    swing = 1.0
    while step >= 2:
        half = step // 2
        corners = heights[::step, ::step]
        right = np.roll(corners, -1, axis=1)
        below = np.roll(corners, -1, axis=0)
        opposite = np.roll(right, -1, axis=0)
        neighbours = (corners, right, below, opposite)
        middles = _displace(neighbours, swing, rng)
        heights[half::step, half::step] = middles
        above = np.roll(middles, 1, axis=0)
        neighbours = (corners, right, middles, above)
        heights[::step, half::step] = _displace(neighbours, swing, rng)
        left = np.roll(middles, 1, axis=1)
        neighbours = (corners, below, middles, left)
        heights[half::step, ::step] = _displace(neighbours, swing, rng)
        step = half
        swing = swing / decay**2
    heights -= heights.min()
    return heights / heights.max()


def _displace(
    points: tuple[Floats, ...],
    swing: float,
    rng: np.random.Generator,
) -> Floats:
    """Return the mean of neighbours plus random offsets."""
    mean = sum(points) / len(points)
    return mean + rng.uniform(-swing, swing, points[0].shape)


@cache
def common_words() -> tuple[str, ...]:
    """Return the vocabulary of ``replace_words``."""
    path = Path(__file__).with_name("common_words.txt")
    _, *lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(" ".join(lines).split())


def replace_words(text: str, share: float, *, key: str) -> str:
    """Return the text with a ``share`` (0 to 1) of its words replaced, rounded half up.

    Words and replacements are drawn uniformly (the paper does not specify); a word never becomes
    itself in another case, and the text between words stays.
    """
    rng = _generator("replace", key, share, text)
    vocabulary = common_words()
    word_count = len(WORD.findall(text))
    positions: set[int] = set()
    if word_count:
        replaced = int(share * word_count + 0.5)
        chosen = rng.choice(word_count, replaced, replace=False)
        positions = set(chosen.tolist())
    numbers = count()

    def draw_word(match: re.Match[str]) -> str:
        word = match[0]
        if next(numbers) not in positions:
            return word
        while True:
            number = int(rng.integers(len(vocabulary)))
            drawn = vocabulary[number]
            if drawn.casefold() != word.casefold():
                return drawn

    return WORD.sub(draw_word, text)
