"""Words of rendered scenes and their values: shapes, colours, materials, sizes, lights, viewpoints.

Reads and writes nothing. Plurals and prepositions, which captions need, are in ``schemas.scene``.
"""

from dataclasses import dataclass
from typing import Literal

from pairwright.schemas.claims import DEPTHS
from pairwright.schemas.scene import PREPOSITIONS

Size = Literal["small", "medium", "large"]
Facing = Literal["left", "right", "front", "back"]
FACINGS: tuple[Facing, ...] = ("left", "right", "front", "back")

SIZES: dict[Size, float] = {"small": 0.68, "medium": 1.0, "large": 1.42}
"""Scale of each size, in steps of 1.4, which are visible across the depth of a place."""

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (196, 26, 32),
    "orange": (242, 118, 14),
    "yellow": (246, 205, 36),
    "green": (38, 138, 58),
    "turquoise": (38, 186, 180),
    "blue": (30, 72, 190),
    "purple": (118, 52, 160),
    "pink": (240, 128, 174),
    "white": (236, 235, 230),
    "black": (30, 30, 33),
}
"""sRGB of each colour under white light."""

_NEAR = (
    "red orange",
    "orange yellow",
    "red pink",
    "purple pink",
    "blue purple",
    "green turquoise",
    "blue turquoise",
)
NEAR_COLOURS = frozenset(frozenset(pair.split()) for pair in _NEAR)
"""Pairs of colours that no change exchanges: coloured light makes them similar."""

METALLIC_COLOURS = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink")
"""Colours of metal: white metal looks grey, and black metal takes the colour of the room."""

ROUND = ("rubber", "metal", "ceramic", "wooden")
VESSEL = ("ceramic", "metal", "wooden")
CLEAR = 0.06
"""A column or a depth is clear this far from the next, as a share of the picture's width or the
place's depth."""
_MATT = ("rubber", "wooden", "leather")
CLEAR_MATERIALS = frozenset(frozenset(("metal", matt)) for matt in _MATT)
"""Pairs of materials that a change exchanges: metal, which mirrors the room, and matt ones; others
look alike."""
LITTLE_MATERIAL = ("chair", "sign")
"""Shapes that are too thin to show their material, or have a painted board."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Possible looks of a shape."""

    materials: tuple[str, ...] = ROUND
    sizes: tuple[Size, ...] = tuple(SIZES)
    poses: tuple[str, ...] = ()
    """Phrases after the noun; none for shapes of one piece."""
    front: bool = False
    carries: tuple[str | None, ...] = ()
    """Poses (``None``: of one piece) with a top that can carry another object."""
    rides: bool = True
    """Whether it may rest on another object."""
    repeats: bool = False
    """Whether it occurs in groups of like objects."""


LID = ("with its lid closed", "with its lid open")
HEAD = ("with its head raised", "with its head bowed")
ARMS = ("with its arms lowered", "with its arms raised")
SHAPES: dict[str, Kind] = {
    "ball": Kind(repeats=True),
    "cube": Kind(carries=(None,), repeats=True),
    "cylinder": Kind(carries=(None,), repeats=True),
    "cone": Kind(repeats=True),
    "pyramid": Kind(repeats=True),
    "ring": Kind(materials=("rubber", "metal", "wooden"), repeats=True),
    "vase": Kind(materials=VESSEL),
    "bowl": Kind(materials=VESSEL),
    "mug": Kind(materials=VESSEL, repeats=True),
    "teapot": Kind(materials=("ceramic", "metal"), front=True),
    "box": Kind(
        materials=("wooden", "metal", "leather"),
        poses=LID,
        carries=LID[:1],
        rides=False,
    ),
    "book": Kind(
        materials=("leather",),
        poses=("lying closed", "lying open"),
        carries=("lying closed",),
        rides=False,
    ),
    "lamp": Kind(
        materials=("metal", "ceramic"),
        poses=HEAD,
        front=True,
        rides=False,
    ),
    "chair": Kind(
        materials=("wooden", "metal", "leather"),
        front=True,
        rides=False,
    ),
    "robot": Kind(
        materials=("metal", "rubber", "wooden"),
        poses=ARMS,
        front=True,
    ),
    "car": Kind(materials=("metal", "wooden", "rubber"), front=True),
    "duck": Kind(
        materials=("rubber", "ceramic", "wooden"),
        front=True,
        repeats=True,
    ),
    "sign": Kind(
        materials=("wooden", "metal"),
        sizes=("medium", "large"),
        rides=False,
    ),
}


def colours_of(shape: str, material: str) -> tuple[str, ...]:
    """Return the colours that are clear on a shape and material; a white book has white pages."""
    if material == "metal":
        return METALLIC_COLOURS
    return tuple(colour for colour in COLOURS if (shape, colour) != ("book", "white"))


TEXTS = (
    "STOP",
    "OPEN",
    "EXIT",
    "SALE",
    "CAFE",
    "TAXI",
    "ZOO",
    "BUS",
    "PARK",
    "SHOP",
    "7",
    "12",
    "24",
    "58",
    "96",
)
"""Texts of signs: at most four letters, readable 40 pixels wide."""


@dataclass(frozen=True, slots=True)
class View:
    """Camera's direction: degrees from the front (right positive) and above the ground."""

    azimuth: float
    elevation: float
    phrase: str


SIDES = {"left": -13.0, "front": 0.0, "right": 13.0}
HEIGHTS = {"low": 21.0, "raised": 30.0, "high": 41.0}


def view_phrase(side: str, height: str) -> str:
    """Return the noun phrase of a viewpoint."""
    return f"a {height} viewpoint from the {side}"


Direction = Literal["left", "right", "above"]
Tint = Literal["warm", "white", "cool"]


@dataclass(frozen=True, slots=True)
class Light:
    """Light of a photograph."""

    direction: Direction
    tint: Tint
    dim: bool = False

    @property
    def phrase(self) -> str:
        """Return its noun phrase ("dim warm light from the left")."""
        brightness = "dim" if self.dim else "bright"
        origin = self.direction if self.direction == "above" else f"the {self.direction}"
        return f"{brightness} {self.tint} light from {origin}"


TINTS: dict[Tint, tuple[float, float, float]] = {
    "warm": (1.12, 0.98, 0.79),
    "white": (1.0, 1.0, 1.0),
    "cool": (0.84, 0.98, 1.2),
}
DIRECTIONS: tuple[Direction, ...] = ("left", "right", "above")
PLACES = tuple(PREPOSITIONS)
_MATERIALS = set[str]().union(*(kind.materials for kind in SHAPES.values()))

SCENE_WORDS: dict[str, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "material": tuple(sorted(_MATERIALS)),
    "size": tuple(SIZES),
    "shape": tuple(SHAPES),
    "column": ("left", "centre", "right"),
    "depth": DEPTHS,
    "facing": FACINGS,
    "text": TEXTS,
    "rests_on": tuple(shape for shape, kind in SHAPES.items() if kind.carries),
}
"""Words of rendered scenes by attribute, also for edits, so that no word reveals an edit."""
