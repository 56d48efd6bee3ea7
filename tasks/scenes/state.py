"""State of a photograph: objects and their positions, place and light; and its camera.

Reads and writes nothing; frozen, so that a change makes a new state. Plans and the renderer use the
same camera, so that they agree.
"""

from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.scenes.meshes import Soup
from pairwright.tasks.scenes.shapes import ShapePiece, extent_of, form_of
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
    """Id of the supporting object; ``None``: the ground."""
    group: str | None = None
    """Name of its group of like objects."""
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
        _, _, height = extent_of(self.shape, self.pose)
        return height * self.scale

    def footprint(self) -> tuple[Soup, Soup]:
        """Return the centre and the four corners of its bounding rectangle, seen from above."""
        centre, half, _ = extent_of(self.shape, self.pose)
        signs = np.array(
            [
                (-1, -1),
                (1, -1),
                (1, 1),
                (-1, 1),
            ]
        )
        local = (np.array(centre) + signs * np.array(half)) * self.scale
        corners = local @ self._turn().T + (self.x, self.y)
        return corners.mean(0), corners

    def parts(self) -> list[ShapePiece]:
        """Return its parts in world coordinates."""
        turn = np.eye(3)
        turn[:2, :2] = self._turn()
        position = np.array([self.x, self.y, self.z])
        parts: list[ShapePiece] = []
        for piece in form_of(self.shape, self.pose):
            soup = piece.soup * self.scale @ turn.T + position
            normals = None if piece.normals is None else piece.normals @ turn.T
            parts.append(ShapePiece(piece.role, soup, normals))
        return parts

    def can_carry(self) -> bool:
        """Return whether another object may rest on it."""
        return self.size != "small" and self.pose in SHAPES[self.shape].carries

    def _turn(self) -> Soup:
        cos = np.cos(self.yaw)
        sin = np.sin(self.yaw)
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
        """Return the object of an id."""
        return next(item for item in self.things if item.id == name)

    def without(self, *names: str) -> "Scene":
        """Return the scene without some objects."""
        remaining = tuple(item for item in self.things if item.id not in names)
        return replace(self, things=remaining)

    def having(self, *changed: Thing) -> "Scene":
        """Return the scene with objects replaced by those of the same id, and new ones added."""
        new = {item.id: item for item in changed}
        replaced = tuple(new.pop(item.id, item) for item in self.things)
        return replace(self, things=(*replaced, *new.values()))


TARGET = np.array([0.0, 0.1, 0.3])
DISTANCE = 8.0
HALF_FIELD = np.radians(17.0)
"""Half of the horizontal field of view at 4:3; wider photographs keep the vertical field, narrower
the horizontal."""
MARGIN = 0.015  # between an object and the edge of its photograph, as a share of the width

NEAR = -1.8
FAR = 1.8
"""Range along the view, from the place's middle, that is divided into thirds of depth."""

SURE_DEGREES = 38.0
"""Largest angle of a clear facing from its axis; the quarters meet at 45."""

Mask = NDArray[np.bool_]
Column = Literal["left", "centre", "right"]
Depth = Literal["front", "middle", "back"]
COLUMNS: tuple[Column, Column, Column] = ("left", "centre", "right")
DEPTHS: tuple[Depth, Depth, Depth] = ("front", "middle", "back")
_FACINGS: tuple[Facing, ...] = ("front", "right", "back", "left")
SUBPIXELS = 4
"""Lines per pixel of a silhouette before it is sampled."""
SUBPIXEL_BITS = 4
"""Bits of a fraction of a subpixel in OpenCV's coordinates."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position of an object in a photograph, in words."""

    column: Column
    depth: Depth
    clear: bool
    """Whether both words are ``CLEAR``."""

    def is_clearly_not(self, other: "Position") -> bool:
        """Return whether both positions are clear and differ."""
        if not self.clear or not other.clear:
            return False
        return (self.column, self.depth) != (other.column, other.depth)


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
        across = np.radians(self.view.azimuth)
        up = np.radians(self.view.elevation)
        x = np.sin(across) * np.cos(up)
        y = -np.cos(across) * np.cos(up)
        z = np.sin(up)
        return TARGET + DISTANCE * np.array([x, y, z])

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
        x = self.width / 2 + scale * (away @ right)
        y = self.height / 2 + scale * (away @ down)
        return np.stack([x, y], axis=-1)

    def silhouette(self, item: Thing) -> Mask:
        """Return the pixels of the object alone, by the pixels' centres."""
        size = (self.height * SUBPIXELS, self.width * SUBPIXELS)
        enlarged = np.zeros(size, np.uint8)
        for part in item.parts():
            corners = self.project(part.soup)
            a = corners[:, 1] - corners[:, 0]
            b = corners[:, 2] - corners[:, 0]
            towards = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0
            positions = (corners[towards] * SUBPIXELS - 0.5) * 2**SUBPIXEL_BITS
            for triangle in np.round(positions).astype(np.int32):
                cv2.fillConvexPoly(
                    enlarged,
                    triangle,
                    1,
                    shift=SUBPIXEL_BITS,
                )
        centre = SUBPIXELS // 2
        return enlarged[centre::SUBPIXELS, centre::SUBPIXELS].astype(bool)

    def frames(self, item: Thing) -> bool:
        """Return whether the whole object is in the photograph, with a margin."""
        points = [self.project(part.soup).reshape(-1, 2) for part in item.parts()]
        pixels = np.concatenate(points)
        rim = MARGIN * self.width
        end = (self.width - rim, self.height - rim)
        return bool((pixels >= rim).all() and (pixels <= end).all())

    def distance(self, item: Thing) -> float:
        """Return the distance of the object's middle from the place's, along the view."""
        across = np.radians(self.view.azimuth)
        middle, _ = item.footprint()
        ahead = np.array([-np.sin(across), np.cos(across)])
        return float((middle - TARGET[:2]) @ ahead)

    def position_of(self, item: Thing, mask: Mask) -> Position:
        """Return the object's position.

        Its column is that of the middle of its visible pixels, its depth that of its distance.
        """
        columns = np.flatnonzero(mask.any(axis=0))
        across = (int(columns[0]) + int(columns[-1]) + 1) / 2 / self.width
        ahead = (self.distance(item) - NEAR) / (FAR - NEAR)
        column = COLUMNS[_third(across)]
        depth = DEPTHS[_third(ahead)]
        return Position(column, depth, clear=_is_clear(across) and _is_clear(ahead))

    def facing(self, item: Thing) -> tuple[Facing, float]:
        """Return the object's facing as seen from here, and the degrees by which it deviates."""
        towards = self.position[:2] - (item.x, item.y)
        front = np.array([np.sin(item.yaw), -np.cos(item.yaw)])
        cross = towards[0] * front[1] - towards[1] * front[0]
        angle = float(np.degrees(np.arctan2(cross, towards @ front)))
        quarter = round(angle / 90)
        return _FACINGS[quarter % 4], abs(angle - 90 * quarter)

    def yaw(
        self,
        item: Thing,
        facing: Facing,
        *,
        off_degrees: float,
    ) -> float:
        """Return the yaw of a facing as seen from here."""
        towards = self.position[:2] - (item.x, item.y)
        straight = float(np.arctan2(towards[1], towards[0])) + np.pi / 2
        degrees = 90 * _FACINGS.index(facing) + off_degrees
        return straight + float(np.radians(degrees))


def _third(share: float) -> int:
    return (share >= 1 / 3) + (share > 2 / 3)


def _is_clear(share: float) -> bool:
    return abs(share - 1 / 3) >= CLEAR and abs(share - 2 / 3) >= CLEAR
