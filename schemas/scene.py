"""The scene graph of a rendered photograph: its objects, their places and looks.

A *world* is a place with objects, a camera and lights. Its photographs differ by known changes; an
object keeps its ``id`` through all photographs of its world. Everything that is written about a
scene is derived from these models.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

ChangeType = Literal[
    "viewpoint",
    "illumination",
    "addition",
    "disappearance",
    "removal",
    "substitution",
    "size",
    "colour",
    "orientation",
    "pose",
    "text",
    "counting",
    "move",
    "material",
    "focus",
    "framing",
]
"""The twelve change types of OmniDiff (paper 002, section 3; ``text`` is its "OCR text"), two of
CLEVR-Change, and two of photographs (ours)."""

DISTRACTORS: tuple[ChangeType, ...] = ("viewpoint", "illumination", "focus", "framing")
"""Changes of the photograph, not of the scene: a pair that differs by these only is a "no change"
pair."""


SHAPES = (
    *(
        "ball",
        "cube",
        "cylinder",
        "cone",
        "pyramid",
        "ring",
        "vase",
        "bowl",
        "mug",
        "teapot",
        "box",
        "book",
        "lamp",
    ),
    *("chair", "robot", "car", "duck", "sign"),
)
PLURALS = {shape: "boxes" if shape == "box" else f"{shape}s" for shape in SHAPES}
"""Every shape of rendered scenes, with its plural."""

PREPOSITIONS: dict[str, str] = {
    "a wooden table-top": "on",
    "a room corner": "in",
    "a toy street": "on",
    "a kitchen counter": "on",
    "a picnic blanket": "on",
    "a photo studio": "in",
}
"""Every place of rendered scenes, with the word that puts things there ("on a wooden
table-top")."""


class Frozen(BaseModel):
    """Immutable model that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Mask(Frozen):
    """Binary mask as COCO's uncompressed run lengths (column-major, starting with background)."""

    height: int
    width: int
    counts: tuple[int, ...]


class SceneObject(Frozen):
    """Object of a photograph, in the words that captions use."""

    id: str
    shape: str
    """A noun in the singular that a caption can use ("ball", "mug", "sign")."""
    colour: str | None
    material: str | None
    """An adjective: "metal", "rubber", "glass"..."""
    size: Literal["small", "medium", "large"] | None
    """Of a thing cut out of another photograph, colour, material and size are ``None``."""
    facing: Literal["left", "right", "front", "back"] | None = None
    """Direction of its front in the photograph; ``None`` for shapes without a front."""
    pose: str | None = None
    """State of its parts ("with its lid open"), a phrase that follows the noun; ``None`` for shapes
    of one piece."""
    text: str | None = None
    """Text on it (signs only)."""
    column: Literal["left", "centre", "right"]
    """Third of the photograph that holds the centre of its box."""
    depth: Literal["front", "middle", "back"] | None
    """Third of the place, from the camera, in which it stands; ``None``: not known."""
    clear: bool = True
    """Whether column and depth are unambiguous: it is well away from where two of them meet."""
    box: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1 of its visible part, the last two exclusive."""
    visible: float
    """Visible pixels / pixels of its silhouette in the frame if it were alone (0 to 1)."""
    mask: Mask
    """Its visible pixels."""
    touched: Mask | None = None
    """Of a planted thing: the pixels that differ from the photograph without it, those of its
    shadow and edge included."""
    support: str | None = None
    """Id of the object that it rests on; ``None``: it stands on the ground."""
    rests_on: str | None = None
    """Shape of that object ("box")."""


class Covered(Frozen):
    """Part of the original photograph that a planted thing and its shadow cover."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    object_id: str
    window: tuple[int, int, int, int]
    """Pixels x0, y0, x1, y1, the last two exclusive."""
    png: bytes
    """Base64 in JSON."""


class SceneChange(Frozen):
    """One difference between a photograph and its world's base photograph.

    An *addition* is a thing that the base lacks; a
    *disappearance* is of a thing that stood on the ground, a *removal* of one that rested on
    another thing; a *substitution* puts a thing of another shape in the place, and under the
    ``id``, of the old one; *counting* changes how many there are of several like things; a *move*
    leaves a thing as it is in another column or depth.
    """

    type: ChangeType
    object_id: str | None = None
    """The object concerned; ``None`` for viewpoint and illumination."""
    object_ids: tuple[str, ...] = ()
    """All objects added or taken away where there may be several (counting)."""
    before: str = ""
    after: str = ""
    """The two values ("red", "blue"); for things a noun phrase without article ("small red metal
    ball", "two ...")."""


class SceneGraph(Frozen):
    """Complete description of one photograph of a world."""

    world: str
    """Name of the world, which its photographs share."""
    photograph: int
    """0 is the base photograph of the world."""
    place: str
    """A noun phrase with its article: "a wooden table-top", "a room corner"."""
    light: str
    """A noun phrase: "warm light from the left"."""
    viewpoint: str
    """A noun phrase: "a high viewpoint from the right"."""
    objects: tuple[SceneObject, ...]
    """Every object that is visible in the photograph."""
    changes: tuple[SceneChange, ...] = ()
    """Changes from the base photograph; empty for the base itself."""
    planted: bool = False
    """Whether the objects were planted into a photograph, which shows more than the graph names."""
    covered: tuple[Covered, ...] = ()
    """Of planted things: what the photograph shows without them."""
    exposure: str = ""
    """JSON of ``tasks.scenes.render.Exposure``: how to take the photograph again."""
