"""The camera: where it is, where points fall on the photograph, which way things face, what covers what.

Reads and writes nothing. The same numbers build the renderer's camera, so that plans and photographs agree.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.sources.scene.mesh import Soup
from pairwright.tasks.sources.scene.state import Thing
from pairwright.tasks.sources.scene.vocabulary import Facing, View

TARGET = np.array([0.0, 0.1, 0.3])
DISTANCE = 8.0
HALF_FIELD = np.radians(17.0)
"""Half of the horizontal field of view at 4:3; wider photographs keep the vertical field, narrower the horizontal."""

NEAR, FAR = -1.8, 1.8
"""The place along the view, from its middle, in which depth is told in thirds."""

SURE_DEGREES = 38.0
"""A facing is clear up to this angle from its axis; the quarters meet at 45."""

Mask = NDArray[np.bool_]
_FACINGS: tuple[Facing, ...] = ("front", "right", "back", "left")


@dataclass(frozen=True, slots=True)
class Camera:
    """Be a pinhole camera that looks at the middle of the place."""

    view: View
    width: int
    height: int

    @property
    def focal(self) -> float:
        """Return the focal length in pixels."""
        return min(self.width, self.height * 4 / 3) / (2 * np.tan(HALF_FIELD))

    @property
    def position(self) -> Soup:
        """Return where it is."""
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
        return np.stack([self.width / 2 + scale * (away @ right), self.height / 2 + scale * (away @ down)], axis=-1)

    def silhouette(self, thing: Thing) -> Mask:
        """Return the pixels that the thing alone would cover, by the pixels' centres."""
        fine = 4
        big = np.zeros((self.height * fine, self.width * fine), np.uint8)
        for part in thing.parts():
            corners = self.project(part.soup)
            a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
            towards = a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0
            for triangle in np.round((corners[towards] * fine - 0.5) * 16).astype(np.int32):
                cv2.fillConvexPoly(big, triangle, 1, shift=4)
        return big[fine // 2 :: fine, fine // 2 :: fine].astype(bool)

    def frames(self, thing: Thing, margin: float = 0.015) -> bool:
        """Say whether the whole thing is in the photograph, with a margin (share of the width)."""
        pixels = np.concatenate([self.project(part.soup).reshape(-1, 2) for part in thing.parts()])
        rim = margin * self.width
        return bool((pixels >= rim).all() and (pixels <= (self.width - rim, self.height - rim)).all())

    def distance(self, thing: Thing) -> float:
        """Return how far the middle of its footprint is along the view on the ground, from the place's middle."""
        across = np.radians(self.view.azimuth)
        return float((thing.footprint()[0] - TARGET[:2]) @ np.array([-np.sin(across), np.cos(across)]))

    def facing(self, thing: Thing) -> tuple[Facing, float]:
        """Return where the thing's front points as seen from here, and the degrees by which it is off that."""
        towards = self.position[:2] - (thing.x, thing.y)
        front = np.array([np.sin(thing.yaw), -np.cos(thing.yaw)])
        angle = np.degrees(np.arctan2(towards[0] * front[1] - towards[1] * front[0], towards @ front))
        quarter = round(float(angle) / 90)
        return _FACINGS[quarter % 4], abs(float(angle) - 90 * quarter)

    def yaw(self, thing: Thing, facing: Facing, *, off_degrees: float) -> float:
        """Return the yaw with which the thing faces some way as seen from here."""
        towards = self.position[:2] - (thing.x, thing.y)
        straight = float(np.arctan2(towards[1], towards[0])) + np.pi / 2
        return straight + float(np.radians(90 * _FACINGS.index(facing) + off_degrees))
