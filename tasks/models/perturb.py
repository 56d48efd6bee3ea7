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


def perturb_image(image: RGB, kind: Kind, *, severity: int = 5, key: str) -> RGB:
    """Return a perturbed copy of an ``(h, w, 3)`` image, determined by the key."""
    rng = np.random.default_rng(int(make_key("perturb", key, kind, severity), 16))
    values = image / 255.0
    if kind == "gaussian-noise":
        changed = values + rng.normal(scale=NOISE[severity - 1], size=values.shape)
    else:
        changed = _add_fog(values, severity, rng)
    return (np.clip(changed, 0, 1) * 255).astype(np.uint8)


def _add_fog(values: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Return an image of values from 0 to 1 in fog.

    A black image stays black, as the result is scaled by its brightest value.
    """
    thickness, decay = FOG[severity - 1]
    height, width, _ = values.shape
    side = 1 << (max(height, width, 2) - 1).bit_length()
    brightest = values.max()
    fog = draw_plasma(side, decay, rng=rng)[:height, :width, None]
    return (values + thickness * fog) * brightest / (brightest + thickness)


def draw_plasma(side: int, decay: float, *, rng: np.random.Generator) -> Floats:
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
        middles = _displace((corners, right, below, opposite), swing, rng)
        heights[half::step, half::step] = middles
        above = np.roll(middles, 1, axis=0)
        heights[::step, half::step] = _displace((corners, right, middles, above), swing, rng)
        left = np.roll(middles, 1, axis=1)
        heights[half::step, ::step] = _displace((corners, below, middles, left), swing, rng)
        step = half
        swing = swing / decay**2
    heights -= heights.min()
    return heights / heights.max()


def _displace(points: tuple[Floats, ...], swing: float, rng: np.random.Generator) -> Floats:
    """Return the mean of neighbours plus random offsets."""
    return sum(points) / len(points) + rng.uniform(-swing, swing, points[0].shape)


@cache
def common_words() -> tuple[str, ...]:
    """Return the vocabulary of ``replace_words``."""
    text = Path(__file__).with_name("common_words.txt").read_text(encoding="utf-8")
    _, *lines = text.splitlines()
    return tuple(" ".join(lines).split())


def replace_words(text: str, share: float, *, key: str) -> str:
    """Return the text with a ``share`` (0 to 1) of its words replaced, rounded half up.

    Words and replacements are drawn uniformly (the paper does not specify); a word never becomes
    itself in another case, and the text between words stays.
    """
    rng = np.random.default_rng(int(make_key("replace", key, share, text), 16))
    vocabulary = common_words()
    word_count = len(WORD.findall(text))
    positions: set[int] = set()
    if word_count:
        chosen = rng.choice(word_count, int(share * word_count + 0.5), replace=False)
        positions = set(chosen.tolist())
    numbers = count()

    def draw_word(match: re.Match[str]) -> str:
        word = match[0]
        if next(numbers) not in positions:
            return word
        while True:
            drawn = vocabulary[int(rng.integers(len(vocabulary)))]
            if drawn.casefold() != word.casefold():
                return drawn

    return WORD.sub(draw_word, text)
