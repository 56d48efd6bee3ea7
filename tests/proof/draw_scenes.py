"""Draw scenes that a small model learns to see: flat shapes on a plain ground, with the graphs of
rendered scenes.

Each pair shows the same three to five things, of which one has another colour, is another thing, or
is gone or new. Things stand in the cells of a grid of three by three, jittered, over noise; a cell
is one token of the model. What is said of them is what the program says of rendered photographs,
what people might say (``people.py``), or something false that a careless writer might say. A pair
takes 3 ms; the same seed gives the same pairs.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from tests.proof.measure_truth import judge, tells
from tests.proof.people import say_as_people

NAMED = ("red", "yellow", "green", "blue", "purple", "white")
SHAPES = ("ball", "cube", "cone", "ring")
COLUMNS: tuple[Literal["left", "centre", "right"], ...] = ("left", "centre", "right")
DEPTHS: tuple[Literal["back", "middle", "front"], ...] = ("back", "middle", "front")
CHANGES: dict[ChangeType, int] = {"colour": 3, "substitution": 1, "removal": 1}
"""How often each is drawn."""
GROUND, NOISE = 150, 6.0
Mistake = tuple[Literal["colour", "shape"], str, str]
"""What of a thing is taken for what: ("colour", "purple", "blue")."""


SIDE, CELL, RADIUS = 48, 16, 6
"""Pixels of an image's side and of a cell's, and the radius of what stands in it."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Pair of drawn scenes."""

    row: PreferenceRow
    """Its two images and a true description; nothing is rejected."""
    graphs: Graphs

    @property
    def rng(self) -> Random:
        """Return a source of chance of its own."""
        return Random(self.row.key)

    def people(self) -> str:
        """Return what people might say of it; nothing where their short words could mean another
        thing."""
        said = say_as_people(self.graphs, self.rng)
        return said if tells(said, self.graphs) else ""

    def wrong(self) -> str:
        """Return a fluent description of which a statement is false."""
        return say_something_false(self.graphs, self.rng)

    def without(self) -> tuple[bytes, ...]:
        """Return both images without what differs."""
        return tuple(
            _encode(paint(_without_change(graph, self.graphs), self.rng)) for graph in self.graphs
        )


def draw_pairs(number: int, *, seed: int = 0, split: str = "train") -> Iterator[Drawn]:
    """Yield so many pairs whose row is of a split."""
    for place in range(number):
        rng = Random(f"{split} {seed} {place}")
        pair = draw_pair(rng, f"{split} {place}")
        text = say_something_true(pair, rng)
        images = tuple(_encode(paint(graph, rng)) for graph in pair)
        key = make_key("drawn", split, str(seed), str(place))
        row = replace(
            preference(0),
            key=key,
            subject=key,
            source_key=key,
            chosen=text,
            rejected="",
            rejected_maker="",
            split=split,
            images=images,
            image_keys=tuple(make_key(image) for image in images),
        )
        yield Drawn(row=row, graphs=pair)


def say_something_true(pair: Graphs, rng: Random) -> str:
    """Return a description as the program writes them."""
    while True:
        if said := compose_difference(pair, rng):
            return said.text


def say_something_false(pair: Graphs, rng: Random) -> str:
    """Return a fluent description of which a statement is false: one of the things is seen as
    another one."""
    while True:
        graphs = list(pair)
        side = rng.randrange(2)
        thing = rng.choice([*_changed(pair), *_changed(pair), *graphs[side].objects])
        name, words = rng.choice((("colour", NAMED), ("shape", SHAPES)))
        other = thing.model_copy(
            update={name: rng.choice([word for word in words if word != getattr(thing, name)])}
        )
        objects = tuple(other if one.id == thing.id else one for one in graphs[side].objects)
        graphs[side] = graphs[side].model_copy(update={"objects": objects})
        said = compose_difference((graphs[0], graphs[1]), rng)
        if said is not None and (found := judge(said.text, pair)) and not all(found):
            return said.text


def say_as_mistaken(pair: Graphs, mistakes: Sequence[Mistake], rng: Random) -> str:
    """Return what is written by somebody who takes some things for others: true where the pair has
    none of these."""
    seen = [
        graph.model_copy(
            update={"objects": tuple(_mistake(one, mistakes) for one in graph.objects)}
        )
        for graph in pair
    ]
    said = compose_difference((seen[0], seen[1]), rng)
    return said.text if said else say_something_true(pair, rng)


def _mistake(thing: SceneObject, mistakes: Sequence[Mistake]) -> SceneObject:
    wrong = {name: other for name, word, other in mistakes if getattr(thing, name) == word}
    return thing.model_copy(update=wrong)


def _changed(pair: Graphs) -> list[SceneObject]:
    first, second = ({one.id: one for one in graph.objects} for graph in pair)
    return [one for name, one in (first | second).items() if first.get(name) != second.get(name)]


def _without_change(graph: SceneGraph, pair: Graphs) -> SceneGraph:
    gone = {one.id for one in _changed(pair)}
    return graph.model_copy(
        update={"objects": tuple(one for one in graph.objects if one.id not in gone)}
    )


def draw_pair(rng: Random, world: str) -> Graphs:
    """Return the graphs of two scenes."""
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
    before = (
        changed.colour
        if kind == "colour"
        else f"{changed.colour} {changed.material} {changed.shape}"
    )
    if kind == "substitution":
        other = f"{changed.colour} {changed.material} {other}"
    change = SceneChange(type=kind, object_id=changed.id, before=before, after=other)
    common: dict[str, Any] = {
        "world": world,
        "place": "a photo studio",
        "light": "even light",
        "viewpoint": "a low viewpoint",
    }
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
        id=name,
        shape=rng.choice(SHAPES),
        colour=rng.choice(NAMED),
        material="rubber",
        size="medium",
        column=COLUMNS[column],
        depth=DEPTHS[row],
        box=box,
        visible=1.0,
        mask=Mask(height=SIDE, width=SIDE, counts=(SIDE**2,)),
    )


def paint(graph: SceneGraph, rng: Random) -> NDArray[np.uint8]:
    """Return a scene's photograph."""
    image = Image.new("RGB", (SIDE, SIDE), (GROUND,) * 3)
    pen = ImageDraw.Draw(image)
    for thing in graph.objects:
        (left, top, right, bottom), fill = thing.box, COLOURS[thing.colour]
        box = (left, top, right - 1, bottom - 1)
        if thing.shape == "cube":
            pen.rectangle(box, fill=fill)
        elif thing.shape == "cone":
            pen.polygon(
                [(left, bottom - 1), (right - 1, bottom - 1), ((left + right) // 2, top)], fill=fill
            )
        elif thing.shape == "ring":
            pen.ellipse(box, outline=fill, width=RADIUS // 2)
        else:
            pen.ellipse(box, fill=fill)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, NOISE, (SIDE, SIDE, 3))
    return np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)


def _encode(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=95)
    return file.getvalue()
