"""State of a photograph: things and their positions, place and light; and its camera.

Reads and writes nothing; frozen, so that a change makes a new state. Plans and the renderer use the
same camera, so that they agree.
"""

from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.scenes.shapes import ShapePiece, Soup, extent_of, form_of
from pairwright.tasks.scenes.vocabulary import CLEAR, SHAPES, SIZES, Facing, Light, Size, View


@dataclass(frozen=True, slots=True)
class Thing:
    """Object: its words and its position (metres of the toy world, radians)."""

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
    """Id of the supporting thing; ``None``: the ground."""
    group: str | None = None
    """Name of its group of like things."""
    wear: float = 0.5
    """From 0 (polished) to 1 (worn); no text names it."""

    @property
    def scale(self) -> float:
        """Return its size as a factor."""
        return SIZES[self.size]

    @property
    def phrase(self) -> str:
        """Return a noun phrase without article ("small red metal ball")."""
        return f"{self.size} {self.colour} {self.material} {self.shape}"

    @property
    def height(self) -> float:
        """Return its height."""
        return extent_of(self.shape, self.pose)[2] * self.scale

    def footprint(self) -> tuple[Soup, Soup]:
        """Return the centre and the four corners of its bounding rectangle, seen from above."""
        centre, half, _ = extent_of(self.shape, self.pose)
        signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
        local = (np.array(centre) + signs * np.array(half)) * self.scale
        corners = local @ self._turn().T + (self.x, self.y)
        return corners.mean(0), corners

    def parts(self) -> list[ShapePiece]:
        """Return its parts in world coordinates."""
        turn = np.eye(3)
        turn[:2, :2] = self._turn()
        at = np.array([self.x, self.y, self.z])
        return [
            ShapePiece(
                one.role,
                one.soup * self.scale @ turn.T + at,
                None if one.normals is None else one.normals @ turn.T,
            )
            for one in form_of(self.shape, self.pose)
        ]

    def can_carry(self) -> bool:
        """Return whether another thing may rest on it."""
        return self.size != "small" and self.pose in SHAPES[self.shape].carries

    def _turn(self) -> Soup:
        cos, sin = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([(cos, -sin), (sin, cos)])


@dataclass(frozen=True, slots=True)
class Scene:
    """Content of a photograph, without its size and noise."""

    place: str
    style: int
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
        """Return the scene with things replaced by those of the same id, and new ones at the end."""
        new = {thing.id: thing for thing in changed}
        kept = tuple(new.pop(thing.id, thing) for thing in self.things)
        return replace(self, things=(*kept, *new.values()))


TARGET, DISTANCE = np.array([0.0, 0.1, 0.3]), 8.0
HALF_FIELD = np.radians(17.0)
"""Half of the horizontal field of view at 4:3; wider photographs keep the vertical field, narrower
the horizontal."""
MARGIN = 0.015  # between a thing and the edge of its photograph, as a share of the width

NEAR, FAR = -1.8, 1.8
"""Range along the view, from the place's middle, that is divided into thirds of depth."""

SURE_DEGREES = 38.0
"""Largest angle of a clear facing from its axis; the quarters meet at 45."""

Mask = NDArray[np.bool_]
Column = Literal["left", "centre", "right"]
Depth = Literal["front", "middle", "back"]
COLUMNS: tuple[Column, Column, Column] = ("left", "centre", "right")
DEPTHS: tuple[Depth, Depth, Depth] = ("front", "middle", "back")
_FACINGS: tuple[Facing, ...] = ("front", "right", "back", "left")


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a thing in a photograph, in words."""

    column: Column
    depth: Depth
    clear: bool
    """Whether both words are ``CLEAR``."""

    def is_clearly_not(self, other: "Position") -> bool:
        """Return whether both positions are clear and differ."""
        return (
            self.clear and other.clear and (self.column, self.depth) != (other.column, other.depth)
        )


@dataclass(frozen=True, slots=True)
class Camera:
    """Pinhole camera directed at the middle of the place."""

    view: View
    width: int
    height: int

    @property
    def focal(self) -> float:
        """Return the focal length in pixels."""
        return min(self.width, self.height * 4 / 3) / (2 * np.tan(HALF_FIELD))

    @property
    def position(self) -> Soup:
        """Return its position in the world."""
        across, up = np.radians(self.view.azimuth), np.radians(self.view.elevation)
        away = np.array([np.sin(across) * np.cos(up), -np.cos(across) * np.cos(up), np.sin(up)])
        return TARGET + DISTANCE * away

    @property
    def axes(self) -> tuple[Soup, Soup, Soup]:
        """Return the directions right, down and ahead."""
        ahead = (TARGET - self.position) / DISTANCE
        right = np.cross(ahead, (0, 0, 1))
        right /= np.linalg.norm(right)
        return right, np.cross(ahead, right), ahead

    def project(self, points: Soup) -> Soup:
        """Return x and y in pixels of points ``(..., 3)``."""
        right, down, ahead = self.axes
        away = points - self.position
        scale = self.focal / (away @ ahead)
        return np.stack(
            [self.width / 2 + scale * (away @ right), self.height / 2 + scale * (away @ down)],
            axis=-1,
        )

    def silhouette(self, thing: Thing) -> Mask:
        """Return the pixels of the thing alone, by the pixels' centres."""
        fine = 4
        big = np.zeros((self.height * fine, self.width * fine), np.uint8)
        for part in thing.parts():
            corners = self.project(part.soup)
            a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
            towards = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0
            for triangle in np.round((corners[towards] * fine - 0.5) * 16).astype(np.int32):
                cv2.fillConvexPoly(big, triangle, 1, shift=4)
        return big[fine // 2 :: fine, fine // 2 :: fine].astype(bool)

    def frames(self, thing: Thing) -> bool:
        """Return whether the whole thing is in the photograph, with a margin."""
        pixels = np.concatenate([self.project(part.soup).reshape(-1, 2) for part in thing.parts()])
        rim = MARGIN * self.width
        return bool(
            (pixels >= rim).all() and (pixels <= (self.width - rim, self.height - rim)).all()
        )

    def distance(self, thing: Thing) -> float:
        """Return the distance of the thing's middle from the place's middle, along the view on the ground."""
        across = np.radians(self.view.azimuth)
        return float(
            (thing.footprint()[0] - TARGET[:2]) @ np.array([-np.sin(across), np.cos(across)])
        )

    def position_of(self, thing: Thing, mask: Mask) -> Position:
        """Return the thing's position: the middle of its visible pixels across, and its distance in depth."""
        columns = np.flatnonzero(mask.any(axis=0))
        across = (int(columns[0]) + int(columns[-1]) + 1) / 2 / self.width
        ahead = (self.distance(thing) - NEAR) / (FAR - NEAR)
        clear = all(
            abs(share - border) >= CLEAR for share in (across, ahead) for border in (1 / 3, 2 / 3)
        )
        column, depth = ((share >= 1 / 3) + (share > 2 / 3) for share in (across, ahead))
        return Position(COLUMNS[column], DEPTHS[depth], clear)

    def facing(self, thing: Thing) -> tuple[Facing, float]:
        """Return the thing's facing as seen from here, and the degrees by which it deviates."""
        towards = self.position[:2] - (thing.x, thing.y)
        front = np.array([np.sin(thing.yaw), -np.cos(thing.yaw)])
        angle = np.degrees(
            np.arctan2(towards[0] * front[1] - towards[1] * front[0], towards @ front)
        )
        quarter = round(float(angle) / 90)
        return _FACINGS[quarter % 4], abs(float(angle) - 90 * quarter)

    def yaw(self, thing: Thing, facing: Facing, *, off_degrees: float) -> float:
        """Return the yaw of a facing as seen from here."""
        towards = self.position[:2] - (thing.x, thing.y)
        straight = float(np.arctan2(towards[1], towards[0])) + np.pi / 2
        return straight + float(np.radians(90 * _FACINGS.index(facing) + off_degrees))
