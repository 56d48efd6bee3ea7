"""Shapes of objects: the parts of each shape in each pose, on z = 0, the front towards -y.

Reads and writes nothing. Lengths are those of a medium object; results are cached and must not be
changed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

import numpy as np

from pairwright.tasks.scenes.meshes import (
    Soup,
    arc,
    ball,
    corner_normals,
    lathe,
    rounded_box,
    triangles_of_grid,
    tube,
    turned,
)

Point = tuple[float, float, float]
Role = Literal["body", "dark", "pale", "steel", "glow", "board"]


@dataclass(frozen=True, slots=True)
class ShapePiece:
    """Piece of an object; ``body`` has its colour and material, other roles have their own."""

    role: Role
    soup: Soup
    normals: Soup | None = None
    """Of each corner, computed by ``form_of``."""


ROUND: dict[str, list[tuple[float, float]]] = {
    "cylinder": [
        (0, 0),
        *arc((0.25, 0.04), 0.04, (-90, 0), 4),
        *arc((0.25, 0.6), 0.04, (0, 90), 4),
        (0, 0.64),
    ],
    "cone": [
        (0, 0),
        *arc((0.32, 0.03), 0.03, (-90, 45), 5),
        *arc((0, 0.74), 0.03, (25, 90), 4),
    ],
    "vase": [
        (0, 0),
        (0.17, 0),
        (0.19, 0.02),
        (0.25, 0.12),
        (0.29, 0.24),
        (0.29, 0.34),
        (0.24, 0.46),
        (0.15, 0.58),
        (0.11, 0.67),
        (0.11, 0.74),
        (0.15, 0.82),
        (0.165, 0.84),
        (0.14, 0.82),
        (0.09, 0.74),
        (0.09, 0.6),
        (0, 0.5),
    ],
    "bowl": [
        (0, 0),
        (0.16, 0),
        (0.17, 0.03),
        *arc((0, 0.42), 0.38, (-63, -8), 8),
        *arc((0, 0.42), 0.34, (-8, -90), 9),
    ],
}
"""Profiles of the shapes that are turned on a lathe."""


def _turned_profile(pose: str | None, *, shape: str) -> list[ShapePiece]:
    del pose
    return [ShapePiece("body", lathe(ROUND[shape]))]


def _ball(_: str | None) -> list[ShapePiece]:
    return [ShapePiece("body", ball(centre=(0, 0, 0.34), radius=0.34))]


def _cube(_: str | None) -> list[ShapePiece]:
    return [
        ShapePiece(
            "body",
            rounded_box(
                centre=(0, 0, 0.29),
                size=(0.58, 0.58, 0.58),
                bevel=0.045,
            ),
        )
    ]


def _pyramid(_: str | None) -> list[ShapePiece]:
    profile = [
        (0, 0),
        (0.44, 0),
        (0.44, 0.05),
        (0, 0.7),
    ]
    return [ShapePiece("body", lathe(profile, sides=4, turn=np.pi / 4))]


def _ring(_: str | None) -> list[ShapePiece]:
    angles = np.linspace(
        0,
        2 * np.pi,
        40,
        endpoint=False,
    )
    x = 0.3 * np.cos(angles)
    y = 0.3 * np.sin(angles)
    path = np.stack([x, y, np.full(40, 0.11)], axis=1)
    return [
        ShapePiece(
            "body",
            tube(
                path,
                0.11,
                closed=True,
                sides=18,
            ),
        )
    ]


def _mug(_: str | None) -> list[ShapePiece]:
    wall = [
        (0, 0),
        *arc((0.22, 0.03), 0.03, (-90, 0), 4),
        (0.25, 0.5),
        (0.235, 0.515),
        (0.22, 0.5),
        (0.215, 0.08),
        (0, 0.06),
    ]
    angles = np.linspace(-np.pi / 2, np.pi / 2, 12)
    x = 0.23 + 0.16 * np.cos(angles)
    z = 0.27 + 0.14 * np.sin(angles)
    handle = tube(np.stack([x, np.zeros(12), z], axis=1), 0.035)
    return [ShapePiece("body", np.concatenate([lathe(wall), handle]))]


def _teapot(_: str | None) -> list[ShapePiece]:
    wall = [
        (0, 0),
        (0.2, 0),
        *arc((0, 0.27), 0.33, (-48, 62), 12),
        (0.1, 0.55),
        (0, 0.57),
    ]
    knob = ball(
        centre=(0, 0, 0.6),
        radius=0.055,
        steps=10,
    )
    spout = np.array(
        [
            (0, -0.26, 0.2),
            (0, -0.37, 0.26),
            (0, -0.44, 0.37),
            (0, -0.5, 0.5),
        ]
    )
    angles = np.linspace(-np.pi / 2.2, np.pi / 2.2, 12)
    y = 0.27 + 0.17 * np.cos(angles)
    z = 0.3 + 0.15 * np.sin(angles)
    handle = np.stack([np.zeros(12), y, z], axis=1)
    parts = [lathe(wall), knob, tube(spout, 0.05), tube(handle, 0.035)]
    return [ShapePiece("body", np.concatenate(parts))]


def _box(pose: str | None) -> list[ShapePiece]:
    walls = [
        rounded_box(
            centre=(0, 0, 0.02),
            size=(0.78, 0.58, 0.04),
            bevel=0.015,
        ),
        rounded_box(
            centre=(0, -0.27, 0.2),
            size=(0.78, 0.04, 0.4),
            bevel=0.015,
        ),
        rounded_box(
            centre=(0, 0.27, 0.2),
            size=(0.78, 0.04, 0.4),
            bevel=0.015,
        ),
        rounded_box(
            centre=(-0.37, 0, 0.2),
            size=(0.04, 0.58, 0.4),
            bevel=0.015,
        ),
        rounded_box(
            centre=(0.37, 0, 0.2),
            size=(0.04, 0.58, 0.4),
            bevel=0.015,
        ),
    ]
    lid = rounded_box(
        centre=(0, 0, 0.44),
        size=(0.84, 0.64, 0.08),
        bevel=0.02,
    )
    if pose == "with its lid open":
        lid = turned(
            lid,
            -105.0,
            axis=0,
            about=(0, 0.3, 0.42),
        )
    inside = rounded_box(
        centre=(0, 0, 0.05),
        size=(0.7, 0.5, 0.02),
        bevel=0.005,
    )
    return [
        ShapePiece("body", np.concatenate([*walls, lid])),
        ShapePiece("dark", inside),
    ]


def _book(pose: str | None) -> list[ShapePiece]:
    return _closed_book() if pose == "lying closed" else _open_book()


def _closed_book() -> list[ShapePiece]:
    back = rounded_box(
        centre=(0, 0, 0.015),
        size=(0.56, 0.76, 0.03),
        bevel=0.012,
    )
    front = rounded_box(
        centre=(0, 0, 0.155),
        size=(0.56, 0.76, 0.03),
        bevel=0.012,
    )
    spine = rounded_box(
        centre=(-0.27, 0, 0.085),
        size=(0.03, 0.76, 0.17),
        bevel=0.012,
    )
    pages = rounded_box(
        centre=(0.005, 0, 0.085),
        size=(0.5, 0.7, 0.11),
        bevel=0.01,
    )
    return [
        ShapePiece("body", np.concatenate([back, front, spine])),
        ShapePiece("pale", pages),
    ]


def _open_book() -> list[ShapePiece]:
    covers = rounded_box(
        centre=(0, 0, 0.015),
        size=(1.16, 0.76, 0.03),
        bevel=0.012,
    )
    x = np.linspace(0, 0.54, 9)
    rise = 0.05 + 0.07 * np.sin(np.pi * np.sqrt(x / 0.54)) * (1 - x / 0.7)
    left = _sheet(np.stack([-x, rise], axis=1), 0.7)
    right = _sheet(np.stack([x, rise], axis=1), 0.7)
    return [
        ShapePiece("body", covers),
        ShapePiece("pale", np.concatenate([left, right])),
    ]


def _sheet(curve: Soup, depth: float) -> Soup:
    """Return the pages of one side of an open book, under a curve of (x, z)."""
    y = np.full(len(curve), -depth / 2)
    front = np.stack([curve[:, 0], y, curve[:, 1]], axis=1)
    low = front * (1, 1, 0) + (0, 0, 0.03)
    back = (0, depth, 0)
    loop = np.stack([low, front, front + back, low + back, low])
    edge = np.stack([low[-1:], front[-1:], front[-1:] + back, low[-1:] + back])
    bottom = np.stack([low[-1], low[-1] + back])
    top = np.stack([front[-1], front[-1] + back])
    grids = [loop, edge.repeat(2, 1), np.stack([bottom, top])]
    soup = np.concatenate([triangles_of_grid(grid) for grid in grids])
    return soup if curve[-1, 0] < 0 else soup[:, ::-1]


def _lamp(pose: str | None) -> list[ShapePiece]:
    foot = lathe(
        [
            (0, 0),
            *arc((0.24, 0.03), 0.03, (-90, 90), 6),
            (0, 0.07),
        ]
    )
    elbow = (0.0, 0.2, 0.52)
    neck = (0.0, -0.08, 0.92)
    steel = [
        _rod(
            start=(0, 0, 0.04),
            end=elbow,
            radius=0.026,
        ),
        _rod(
            start=elbow,
            end=neck,
            radius=0.026,
        ),
        ball(
            centre=elbow,
            radius=0.045,
            steps=8,
        ),
        ball(
            centre=neck,
            radius=0.045,
            steps=8,
        ),
    ]
    cup = lathe(
        [
            (0, 0.13),
            (0.06, 0.12),
            (0.09, 0.06),
            (0.21, -0.17),
            (0.195, -0.17),
            (0.08, 0.04),
            (0, 0.09),
        ]
    )
    bulb = ball(
        centre=(0, 0, -0.09),
        radius=0.075,
        steps=10,
    )
    tilt = -82.0 if pose == "with its head raised" else -12.0
    top = np.array((0, -0.12, 0.9))
    head = turned(cup, tilt, axis=0) + top
    return [
        ShapePiece("body", np.concatenate([foot, head])),
        ShapePiece("steel", np.concatenate(steel)),
        ShapePiece("glow", turned(bulb, tilt, axis=0) + top),
    ]


def _rod(
    start: Point,
    end: Point,
    *,
    radius: float,
    points: int = 3,
) -> Soup:
    """Return a straight tube."""
    return tube(np.linspace(start, end, points), radius)


def _chair(_: str | None) -> list[ShapePiece]:
    legs: list[Soup] = []
    for x in (-0.21, 0.21):
        for y in (-0.21, 0.21):
            legs.append(
                _rod(
                    start=(x * 1.08, y * 1.08, 0),
                    end=(x, y, 0.42),
                    radius=0.032,
                )
            )
    posts = [
        _rod(
            start=(x, 0.22, 0.42),
            end=(x, 0.29, 0.92),
            radius=0.032,
        )
        for x in (-0.21, 0.21)
    ]
    seat = rounded_box(
        centre=(0, 0, 0.44),
        size=(0.54, 0.54, 0.07),
        bevel=0.025,
    )
    rests = [
        turned(
            rounded_box(
                centre=(0, 0.27, z),
                size=(0.48, 0.04, 0.12),
                bevel=0.018,
            ),
            0,
            axis=0,
        )
        for z in (0.64, 0.83)
    ]
    return [ShapePiece("body", np.concatenate([*legs, *posts, seat, *rests]))]


def _robot(pose: str | None) -> list[ShapePiece]:
    sign = 1.0 if pose == "with its arms raised" else -1.0
    trunk = rounded_box(
        centre=(0, 0, 0.42),
        size=(0.4, 0.28, 0.38),
        bevel=0.05,
    )
    head = rounded_box(
        centre=(0, 0, 0.8),
        size=(0.3, 0.26, 0.24),
        bevel=0.05,
    )
    legs = [
        rounded_box(
            centre=(x, 0, 0.13),
            size=(0.13, 0.18, 0.26),
            bevel=0.03,
        )
        for x in (-0.11, 0.11)
    ]
    arms: list[Soup] = []
    hands: list[Soup] = []
    for x in (-1, 1):
        shoulder = (x * 0.22, 0, 0.54)
        wrist = (x * 0.36, 0, 0.54 + sign * 0.32)
        arms.append(
            _rod(
                start=shoulder,
                end=wrist,
                radius=0.05,
                points=4,
            )
        )
        hands.append(
            ball(
                centre=(x * 0.37, 0, 0.54 + sign * 0.34),
                radius=0.07,
                steps=10,
            )
        )
    eyes = [
        ball(
            centre=(x, -0.125, 0.83),
            radius=0.045,
            steps=8,
        )
        for x in (-0.075, 0.075)
    ]
    chest = rounded_box(
        centre=(0, -0.14, 0.45),
        size=(0.24, 0.03, 0.18),
        bevel=0.012,
    )
    rod = np.array(
        [
            (0, 0, 0.9),
            (0, 0, 0.97),
            (0, 0, 1.02),
        ]
    )
    aerial = [
        tube(rod, 0.015),
        ball(
            centre=(0, 0, 1.03),
            radius=0.035,
            steps=8,
        ),
    ]
    return [
        ShapePiece("body", np.concatenate([trunk, head, *legs, *arms, *hands])),
        ShapePiece("dark", np.concatenate(eyes)),
        ShapePiece("pale", chest),
        ShapePiece("steel", np.concatenate(aerial)),
    ]


def _car(_: str | None) -> list[ShapePiece]:
    hull = rounded_box(
        centre=(0, 0, 0.23),
        size=(0.46, 1.0, 0.22),
        bevel=0.08,
    )
    cabin = rounded_box(
        centre=(0, 0.08, 0.41),
        size=(0.38, 0.5, 0.22),
        bevel=0.07,
    )
    windows = [
        rounded_box(
            centre=(0, 0.08, 0.425),
            size=(0.386, 0.38, 0.11),
            bevel=0.03,
        ),
        rounded_box(
            centre=(0, 0.08, 0.425),
            size=(0.3, 0.506, 0.11),
            bevel=0.03,
        ),
    ]
    profile = [
        (0, -0.05),
        (0.11, -0.05),
        (0.125, -0.03),
        (0.125, 0.03),
        (0.11, 0.05),
        (0, 0.05),
    ]
    tyre = turned(lathe(profile), 90, axis=1)
    wheels = [
        tyre + np.array((-0.22, -0.3, 0.125)),
        tyre + np.array((-0.22, 0.3, 0.125)),
        tyre + np.array((0.22, -0.3, 0.125)),
        tyre + np.array((0.22, 0.3, 0.125)),
    ]
    lights = [
        ball(
            centre=(x, -0.495, 0.25),
            radius=0.05,
            stretch=(1, 0.5, 1),
            steps=8,
        )
        for x in (-0.14, 0.14)
    ]
    return [
        ShapePiece("body", np.concatenate([hull, cabin])),
        ShapePiece("dark", np.concatenate([*wheels, *windows])),
        ShapePiece("glow", np.concatenate(lights)),
    ]


def _duck(_: str | None) -> list[ShapePiece]:
    body = ball(
        centre=(0, 0.05, 0.24),
        radius=0.3,
        stretch=(0.88, 1.2, 0.8),
        steps=18,
    )
    head = ball(
        centre=(0, -0.2, 0.58),
        radius=0.19,
        steps=16,
    )
    cone = lathe([(0, -0.1), (0.12, -0.1), (0, 0.2)])
    tail = turned(cone, -50, axis=0) + np.array((0, 0.34, 0.34))
    wings = [
        ball(
            centre=(x, 0.08, 0.3),
            radius=0.17,
            stretch=(0.35, 1.1, 0.7),
            steps=12,
        )
        for x in (-0.25, 0.25)
    ]
    beak = ball(
        centre=(0, -0.4, 0.55),
        radius=0.1,
        stretch=(0.85, 1, 0.4),
        steps=10,
    )
    eyes = [
        ball(
            centre=(x, -0.34, 0.65),
            radius=0.032,
            steps=8,
        )
        for x in (-0.09, 0.09)
    ]
    return [
        ShapePiece("body", np.concatenate([body, head, tail, *wings])),
        ShapePiece("glow", beak),
        ShapePiece("dark", np.concatenate(eyes)),
    ]


def _sign(_: str | None) -> list[ShapePiece]:
    post = _rod(
        start=(0, 0.03, 0.02),
        end=(0, 0.03, 0.4),
        radius=0.035,
    )
    foot = lathe(
        [
            (0, 0),
            *arc((0.19, 0.03), 0.03, (-90, 90), 6),
            (0, 0.06),
        ]
    )
    frame = rounded_box(
        centre=(0, 0.0, 0.58),
        size=(0.9, 0.06, 0.47),
        bevel=0.025,
    )
    low = [(-0.42, -0.034, 0.37), (0.42, -0.034, 0.37)]
    high = [(-0.42, -0.034, 0.79), (0.42, -0.034, 0.79)]
    board = triangles_of_grid(np.array([low, high]))[:, ::-1]
    return [
        ShapePiece("body", np.concatenate([frame, foot])),
        ShapePiece("steel", post),
        ShapePiece("board", board),
    ]


FORMS: dict[str, Callable[[str | None], list[ShapePiece]]] = {
    **{shape: partial(_turned_profile, shape=shape) for shape in ROUND},
    "ball": _ball,
    "cube": _cube,
    "pyramid": _pyramid,
    "ring": _ring,
    "mug": _mug,
    "teapot": _teapot,
    "box": _box,
    "book": _book,
    "lamp": _lamp,
    "chair": _chair,
    "robot": _robot,
    "car": _car,
    "duck": _duck,
    "sign": _sign,
}


@lru_cache(maxsize=256)
def form_of(shape: str, pose: str | None) -> tuple[ShapePiece, ...]:
    """Return the parts of a shape in a pose, lowered or lifted to stand on z = 0."""
    parts = FORMS[shape](pose)
    floor = min(float(part.soup[..., 2].min()) for part in parts)
    shift = np.array((0, 0, -floor))
    return tuple(
        ShapePiece(part.role, part.soup + shift, corner_normals(part.soup)) for part in parts
    )


@lru_cache(maxsize=256)
def extent_of(
    shape: str, pose: str | None
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the centre and the half sides of the footprint (x, y), and the height."""
    corners = np.concatenate([part.soup.reshape(-1, 3) for part in form_of(shape, pose)])
    low = corners.min(0)
    high = corners.max(0)
    centre = (low + high) / 2
    half = (high - low) / 2
    return (
        (float(centre[0]), float(centre[1])),
        (float(half[0]), float(half[1])),
        float(high[2]),
    )
