"""Draw scenes that a small model can learn to see: flat shapes on a plain ground, with the graphs of rendered scenes.

Each pair shows the same three to five things, of which one has another colour, is another thing, or is gone; things
stand in the cells of a grid of three by three, jittered, over noise. What is said of them is what the program says of
rendered photographs. A pair takes 2 ms; the same seed gives the same pairs.
"""

import io
from dataclasses import replace
from random import Random
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pairwright.schemas.claims import Graphs
from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.schemas.scene import ChangeType, Mask, SceneChange, SceneGraph, SceneObject
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.scenes.vocabulary import COLOURS
from tests.fixtures.preferences_to_train import preference

SIDE, CELL, RADIUS = 64, 21, 8
NAMED = ("red", "yellow", "green", "blue", "purple", "white")
SHAPES = ("ball", "cube", "cone", "ring")
COLUMNS: tuple[Literal["left", "centre", "right"], ...] = ("left", "centre", "right")
DEPTHS: tuple[Literal["back", "middle", "front"], ...] = ("back", "middle", "front")
CHANGES: dict[ChangeType, int] = {"colour": 3, "substitution": 1, "removal": 1}
"""How often each is drawn."""
GROUND, NOISE = 150, 6.0


def draw_rows(train: int, test: int, *, seed: int = 0) -> tuple[list[PreferenceRow], dict[str, Graphs]]:
    """Return rows of the splits train and test, and the graphs of both images by the row's subject."""
    rows: list[PreferenceRow] = []
    graphs: dict[str, Graphs] = {}
    number = 0
    while len(rows) < train + test:
        number += 1
        rng = Random(f"{seed} {number}")
        pair = _draw_pair(rng, str(number))
        said = compose_difference(pair, rng)
        if said is None:
            continue
        images = tuple(_encode(_paint(graph, rng)) for graph in pair)
        key = make_key("drawn", str(seed), str(number))
        split = "train" if len(rows) < train else "test"
        row = replace(preference(0), key=key, subject=key, source_key=key, chosen=said.text, split=split)
        rows.append(replace(row, images=images, image_keys=tuple(make_key(image) for image in images)))
        graphs[key] = pair
    return rows, graphs


def _draw_pair(rng: Random, world: str) -> Graphs:
    cells = rng.sample(range(9), rng.randint(3, 5))
    things = [_thing(str(place), cell, rng) for place, cell in enumerate(cells)]
    changed = rng.choice(things)
    kind = rng.choices(list(CHANGES), list(CHANGES.values()))[0]
    after: list[SceneObject] = [thing for thing in things if thing is not changed]
    other = ""
    if kind != "removal":
        name, words = ("colour", NAMED) if kind == "colour" else ("shape", SHAPES)
        other = rng.choice([word for word in words if word != getattr(changed, name)])
        after.append(changed.model_copy(update={name: other}))
    before = changed.colour if kind == "colour" else f"{changed.colour} {changed.material} {changed.shape}"
    if kind == "substitution":
        other = f"{changed.colour} {changed.material} {other}"
    change = SceneChange(type=kind, object_id=changed.id, before=before, after=other)
    common: dict[str, Any] = {
        "world": world, "place": "a photo studio", "light": "even light", "viewpoint": "a low viewpoint",
    }  # fmt: skip
    pair = (
        SceneGraph(**common, photograph=0, objects=tuple(things)),
        SceneGraph(**common, photograph=1, objects=tuple(after), changes=(change,)),
    )
    return pair if rng.random() < 1 / 2 else (pair[1], pair[0])


def _thing(name: str, cell: int, rng: Random) -> SceneObject:
    row, column = divmod(cell, 3)
    x, y = (CELL * place + CELL // 2 + rng.randint(-1, 1) for place in (column, row))
    box = (x - RADIUS, y - RADIUS, x + RADIUS + 1, y + RADIUS + 1)
    return SceneObject(
        id=name, shape=rng.choice(SHAPES), colour=rng.choice(NAMED), material="rubber", size="medium",
        column=COLUMNS[column], depth=DEPTHS[row], box=box, visible=1.0,
        mask=Mask(height=SIDE, width=SIDE, counts=(SIDE * SIDE,)),
    )  # fmt: skip


def _paint(graph: SceneGraph, rng: Random) -> NDArray[np.uint8]:
    image = Image.new("RGB", (SIDE, SIDE), (GROUND,) * 3)
    pen = ImageDraw.Draw(image)
    for thing in graph.objects:
        (left, top, right, bottom), fill = thing.box, COLOURS[thing.colour]
        box = (left, top, right - 1, bottom - 1)
        if thing.shape == "cube":
            pen.rectangle(box, fill=fill)
        elif thing.shape == "cone":
            pen.polygon([(left, bottom - 1), (right - 1, bottom - 1), ((left + right) // 2, top)], fill=fill)
        elif thing.shape == "ring":
            pen.ellipse(box, outline=fill, width=4)
        else:
            pen.ellipse(box, fill=fill)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, NOISE, (SIDE, SIDE, 3))
    return np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)


def _encode(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
