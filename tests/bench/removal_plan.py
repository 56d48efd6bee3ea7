"""Plan what each step of ``bench_remove`` is given: photographs with ten or twenty tags, their boxes and their masks.

Random weights find boxes and masks that no photograph has. So every step gets what trained models before it might have
found, the same on both sides: a box per tag, for every third tag two, and an ellipse in each for a mask. A tag's mask
covers 0.5 to 25 % of the image, evenly by its logarithm (the range that elements are chosen from by default, but for
the largest; the median is 3.5 %).
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.rows import Box, BoxesRow, ImageRow, MasksRow, Tag, TagsRow, make_key
from pairwright.tasks.store.masks import encode_mask
from tests.fixtures.pictures import photograph
from tests.tasks.models.samples import FILES

SIZE = (640, 480)
NAMES = (
    "cat", "dog", "red ball", "traffic light", "st bernard", "football", "person", "sheep", "two dogs", "light",
    "red cat", "two sheep", "ball", "red light", "two persons", "traffic", "red dog", "two cats", "foot", "two balls",
)  # fmt: skip
LEAST, MOST = 0.005, 0.25
Pixels = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Planned:
    """Be one photograph and what is found in it."""

    image: ImageRow
    tags: TagsRow
    boxes: BoxesRow
    masks: MasksRow
    pixels: tuple[Pixels, ...]
    """The masks, ``(h, w)`` each."""


def plan_images(count: int, tags: int) -> list[Planned]:
    """Return so many, with so many tags each; equal numbers give equal bytes."""
    rng = np.random.default_rng(0)
    sources = [Image.open(path).convert("RGB") for path in FILES]
    return [_plan(sources[number % len(sources)], NAMES[:tags], rng) for number in range(count)]


def _plan(source: Image.Image, names: Sequence[str], rng: np.random.Generator) -> Planned:
    image = _row(source, rng)
    tags = tuple(Tag(name=name, score=1.0, tagger="ram") for name in names)
    boxes = [box for place in range(len(tags)) for box in _boxes(place, rng)]
    pixels = tuple(_union([box for box in boxes if box.tag == place]) for place in range(len(tags)))
    keys = {name: make_key(name, image.key) for name in ("tags", "boxes", "masks")}
    size = {"width": SIZE[0], "height": SIZE[1]}
    return Planned(
        image,
        TagsRow(key=keys["tags"], source_key=image.key, subject=image.key, tags=tags),
        BoxesRow(
            key=keys["boxes"], source_key=keys["tags"], subject=image.key, tags=tags, boxes=tuple(boxes), **size
        ),
        MasksRow(
            key=keys["masks"], source_key=keys["boxes"], subject=image.key, tags=tags, boxes=tuple(boxes),
            masks=tuple(encode_mask(one).model_dump_json() for one in pixels), whys=("",) * len(tags),
            mask_scores=(1.0,) * len(tags), **size,
        ),
        pixels,
    )  # fmt: skip


def _row(source: Image.Image, rng: np.random.Generator) -> ImageRow:
    left, top = rng.uniform(0, 0.1, 2) * source.size
    sink = io.BytesIO()
    box = (left, top, source.width * 0.9 + left, source.height * 0.9 + top)
    source.resize(SIZE, Image.Resampling.LANCZOS, box=box).save(sink, "JPEG", quality=90)
    return photograph(sink.getvalue())


def _boxes(tag: int, rng: np.random.Generator) -> list[Box]:
    """Return the boxes of one tag; together their ellipses cover the share of the image that is drawn."""
    number = 2 if tag % 3 == 2 else 1
    share = math.exp(rng.uniform(math.log(LEAST), math.log(MOST))) / number
    found: list[Box] = []
    for _ in range(number):
        aspect = math.exp(rng.uniform(-0.5, 0.5))
        area = share * SIZE[0] * SIZE[1] * 4 / math.pi
        width, height = min(math.sqrt(area * aspect), SIZE[0]), min(math.sqrt(area / aspect), SIZE[1])
        x0, y0 = rng.uniform(0, SIZE[0] - width), rng.uniform(0, SIZE[1] - height)
        found.append(Box(tag=tag, score=0.5, x0=x0, y0=y0, x1=x0 + width, y1=y0 + height))
    return found


def _union(boxes: Sequence[Box]) -> Pixels:
    """Return the pixels in any of the boxes' ellipses."""
    y, x = np.mgrid[: SIZE[1], : SIZE[0]] + 0.5
    inside = np.zeros(SIZE[::-1], dtype=bool)
    for box in boxes:
        across = (x - (box.x0 + box.x1) / 2) / ((box.x1 - box.x0) / 2)
        down = (y - (box.y0 + box.y1) / 2) / ((box.y1 - box.y0) / 2)
        inside |= across**2 + down**2 <= 1
    return inside
