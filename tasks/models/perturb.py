"""Perturb images and texts, as paper 001 (A.3) does to measure what noise in the data costs.

Images as in ImageNet-C (Hendrycks and Dietterich, 2019), with the numbers of the published generator, which takes
images of 224 pixels; here an image keeps its size, and the fog's map has the smallest power of two that covers it. What
is drawn depends on the key and the arguments alone.
"""

import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.images import RGB

_WORDS = """
man woman boy girl child baby person people crowd player worker driver rider dog cat horse cow sheep bird elephant
bear zebra giraffe fish car truck bus train bicycle motorcycle boat ship plane street road bridge tower house
building window door wall roof fence gate room kitchen bathroom bedroom office chair table desk bed sofa couch lamp
shelf mirror clock picture curtain carpet floor ceiling tree flower grass leaf bush branch plant garden forest field
hill mountain river lake sea beach sand snow ice rock stone sky cloud sun moon rain bag box bottle bowl cup glass
plate spoon fork knife pot basket book paper pen phone camera computer keyboard screen toy ball bat kite racket
shirt jacket coat dress skirt trousers hat cap helmet shoe boot scarf tie glove glasses umbrella watch ring apple
banana orange bread cake pizza sandwich cheese meat egg salad soup coffee tea water milk juice wine hand arm leg
foot head face eye hair tail wing wheel handle button sign flag pole bench statue fountain red blue green yellow
black white brown grey purple pink golden silver bright dark light colourful striped spotted plain big small large
little tall short long narrow wide thick thin round square flat heavy old new young clean dirty wet dry wooden metal
plastic woollen broken empty full open closed hot cold soft hard smooth rough one two three four five six seven
eight nine ten several many few both another standing sitting lying walking running riding driving flying swimming
jumping climbing holding carrying wearing eating drinking looking watching reading writing playing throwing catching
kicking hitting pulling pushing opening closing cutting cooking cleaning smiling laughing talking sleeping waiting
working resting hanging leaning crossing turning moving growing falling shining stands sits lies walks runs rides
holds carries wears eats drinks looks plays throws shows has contains covers above below under over behind beside
between near inside outside across along around through against beneath toward left right top bottom front back
middle corner edge side centre background foreground distance with without on in at by from to of for into onto and
or but while next very quite almost only just also still slowly quickly quietly together alone again now then here
there morning evening night summer winter party market station airport stadium school church shop restaurant museum
zoo farm harbour
"""
COMMON_WORDS = tuple(_WORDS.split())
"""What descriptions of pictures are made of (ours): what wrong words are drawn from."""

Kind = Literal["gaussian-noise", "fog"]
NOISE = (0.08, 0.12, 0.18, 0.26, 0.38)
"""Per severity, the standard deviation, of values from 0 to 1."""
FOG = ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4))
"""Per severity, how thick the fog is, and by what its swings shrink at each finer scale."""
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def perturb_image(image: RGB, kind: Kind, *, severity: int = 5, key: str) -> RGB:
    """Return a perturbed copy of an ``(h, w, 3)`` image; the same key gives the same copy."""
    if kind not in get_args(Kind) or not 1 <= severity <= len(NOISE):
        raise ValueError(f"{kind}, severity {severity}: there are {', '.join(get_args(Kind))}, severities 1 to 5")
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

    A new point is the mean of the four around it, plus a swing, which shrinks by the square of ``decay`` with each
    halving of the grid. ``side`` is a power of two.
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


def replace_words(text: str, share: float, *, key: str, vocabulary: Sequence[str] = COMMON_WORDS) -> str:
    """Return the text with ``share`` (0 to 1) of its words replaced, rounded half up to a whole number of them.

    The paper says neither which words come in nor which are taken: both are drawn evenly here. A word goes to another
    one, upper and lower case being one; what stands between words stays.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share}: not between 0 and 1")
    found = list(WORD.finditer(text))
    rng = np.random.default_rng(int(make_key("replace", key, share, text), 16))
    places = rng.choice(len(found), int(share * len(found) + 0.5), replace=False) if found else ()
    pieces, end = list[str](), 0
    for match in (found[place] for place in sorted(places)):
        pieces += [text[end : match.start()], _other(match[0], vocabulary, rng)]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _other(word: str, vocabulary: Sequence[str], rng: np.random.Generator) -> str:
    for _ in range(100 if vocabulary else 0):  # few of them are the same word
        drawn = vocabulary[int(rng.integers(len(vocabulary)))]
        if drawn.casefold() != word.casefold():
            return drawn
    raise ValueError(f"no other word than {word!r} is in the vocabulary")
