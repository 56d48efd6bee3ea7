"""What a photograph shows, in numbers: the things, where they are, the place, the camera's view and the light.

Reads and writes nothing; frozen, so that a change makes a new state.
"""

from dataclasses import dataclass, replace

import numpy as np

from pairwright.tasks.sources.scene.mesh import Soup
from pairwright.tasks.sources.scene.shapes import Part, extent_of, form_of
from pairwright.tasks.sources.scene.vocabulary import SHAPES, SIZES, Light, Size, View


@dataclass(frozen=True, slots=True)
class Thing:
    """Be one object: its words, and where it stands (metres of the toy world, radians)."""

    id: str
    shape: str
    colour: str
    material: str
    size: Size
    pose: str | None = None
    text: str | None = None
    yaw: float = 0.0
    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    support: str | None = None
    """Id of the thing that it rests on; ``None``: the ground."""
    group: str | None = None
    """Name of the group of like things that it belongs to."""

    @property
    def scale(self) -> float:
        """Return its size as a factor."""
        return SIZES[self.size]

    @property
    def words(self) -> tuple[str, str, str, str]:
        """Return what tells it from others in a text."""
        return self.shape, self.colour, self.material, self.size

    @property
    def phrase(self) -> str:
        """Return a noun phrase without article ("small red metal ball")."""
        return f"{self.size} {self.colour} {self.material} {self.shape}"

    @property
    def height(self) -> float:
        """Return how high it is."""
        return extent_of(self.shape, self.pose)[2] * self.scale

    def footprint(self) -> tuple[Soup, Soup]:
        """Return the centre and the four corners of the rectangle around what it covers, seen from above."""
        centre, half, _ = extent_of(self.shape, self.pose)
        signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
        local = (np.array(centre) + signs * np.array(half)) * self.scale
        corners = local @ self._turn().T + (self.x, self.y)
        return corners.mean(0), corners

    def parts(self) -> list[Part]:
        """Return its parts where they are in the world."""
        turn = np.eye(3)
        turn[:2, :2] = self._turn()
        at = np.array([self.x, self.y, self.z])
        return [
            Part(
                part.role, part.soup * self.scale @ turn.T + at, None if part.normals is None else part.normals @ turn.T
            )
            for part in form_of(self.shape, self.pose)
        ]

    def can_carry(self) -> bool:
        """Say whether another thing may rest on it."""
        return self.size != "small" and self.pose in SHAPES[self.shape].carries

    def _turn(self) -> Soup:
        cos, sin = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([(cos, -sin), (sin, cos)])


@dataclass(frozen=True, slots=True)
class Scene:
    """Be everything that determines a photograph, but for its size and its noise."""

    place: str
    style: int
    """Chooses among the looks of the place."""
    view: View
    light: Light
    things: tuple[Thing, ...]

    def thing(self, name: str) -> Thing:
        """Return the thing of an id."""
        return next(thing for thing in self.things if thing.id == name)

    def without(self, *names: str) -> "Scene":
        """Return the scene without some things."""
        return replace(self, things=tuple(thing for thing in self.things if thing.id not in names))

    def having(self, *changed: Thing) -> "Scene":
        """Return the scene with these things in the place of those of the same ids, new ones at the end."""
        new = {thing.id: thing for thing in changed}
        kept = tuple(new.pop(thing.id, thing) for thing in self.things)
        return replace(self, things=(*kept, *new.values()))
