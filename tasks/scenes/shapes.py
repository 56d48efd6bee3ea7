"""Meshes of things: each shape in each pose, as parts with a role, standing on z = 0 with the front towards -y.

Reads and writes nothing. A mesh is a soup of triangles, float64 of shape ``(n, 3, 3)``: corner,
then x, y, z. Lengths are those of a medium thing; results are cached and must not be changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Soup = NDArray[np.float64]
CREASE_DEGREES = 46.0  # faces that meet at a larger angle have an edge between them


def triangles_of_grid(points: Soup) -> Soup:
    """Return two triangles per cell of a grid of points ``(rows, columns, 3)``, without empty ones."""
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    soup = np.concatenate(
        [np.stack(three, axis=-2).reshape(-1, 3, 3) for three in ([a, b, c], [a, c, d])]
    )
    areas = np.linalg.norm(np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0]), axis=1)
    return soup[areas > 1e-10]


def lathe(profile: Sequence[tuple[float, float]], *, sides: int = 56, turn: float = 0.0) -> Soup:
    """Turn a profile of (radius, height), listed from the bottom up, around the z axis."""
    radius, height = np.array(profile, dtype=np.float64).T
    angles = np.linspace(0.0, 2 * np.pi, sides + 1) + turn
    rows = [
        radius[:, None] * np.cos(angles),
        radius[:, None] * np.sin(angles),
        height[:, None].repeat(sides + 1, 1),
    ]
    return triangles_of_grid(np.stack(rows, axis=-1))[:, ::-1]


def arc(
    centre: tuple[float, float], radius: float, degrees: tuple[float, float], steps: int = 8
) -> list[tuple[float, float]]:
    """Return the points of an arc of a profile; 0 degrees point outwards, 90 up."""
    angles = np.radians(np.linspace(*degrees, steps))
    return [
        (max(0.0, centre[0] + radius * float(np.cos(t))), centre[1] + radius * float(np.sin(t)))
        for t in angles
    ]


def ball(
    centre: Sequence[float], radius: float, *, stretch: Sequence[float] = (1, 1, 1), steps: int = 26
) -> Soup:
    """Return a sphere, or an ellipsoid where it is stretched."""
    sphere = lathe(arc((0.0, 0.0), radius, (-90.0, 90.0), steps), sides=2 * steps)
    return sphere * np.asarray(stretch) + np.asarray(centre)


def rounded_box(centre: Sequence[float], size: Sequence[float], bevel: float) -> Soup:
    """Return a box with rounded edges."""
    half = np.asarray(size, dtype=np.float64) / 2
    inner = half - bevel
    ease = np.array([0.0, 0.42, 0.75, 1.0])
    edges = half - inner
    ticks = [
        np.concatenate([-half[k] + edges[k] * ease, half[k] - edges[k] * ease[::-1]])
        for k in range(3)
    ]
    faces: list[Soup] = []
    for axis, sign in ((axis, sign) for axis in range(3) for sign in (-1.0, 1.0)):
        across, up = (axis + 1) % 3, (axis + 2) % 3
        grid = np.empty((8, 8, 3))
        grid[..., axis] = sign * half[axis]
        grid[..., across], grid[..., up] = ticks[across][:, None], ticks[up][None, :]
        core = np.clip(grid, -inner, inner)
        outward = grid - core
        rounded = core + edges * outward / np.linalg.norm(outward, axis=-1, keepdims=True)
        soup = triangles_of_grid(rounded)
        faces.append(soup if sign > 0 else soup[:, ::-1])
    return np.concatenate(faces) + np.asarray(centre)


def tube(path: Soup, radius: float, *, closed: bool = False, sides: int = 14) -> Soup:
    """Sweep a circle along a path ``(n, 3)`` that stays in one plane or turns gently."""
    ahead = np.roll(path, -1, 0) - np.roll(path, 1, 0) if closed else np.gradient(path, axis=0)
    ahead = ahead / np.linalg.norm(ahead, axis=1, keepdims=True)
    normal = np.linalg.svd(path - path.mean(0))[2][2]
    side = np.cross(ahead, normal)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    lift = np.cross(side, ahead)
    angles = np.linspace(0, 2 * np.pi, sides + 1)
    rings = path[:, None] + radius * (
        np.cos(angles)[:, None] * side[:, None] + np.sin(angles)[:, None] * lift[:, None]
    )
    if closed:
        return triangles_of_grid(np.concatenate([rings, rings[:1]]))
    ends = [path[:1, None].repeat(sides + 1, 1), rings, path[-1:, None].repeat(sides + 1, 1)]
    return triangles_of_grid(np.concatenate(ends))


def turned(soup: Soup, degrees: float, *, axis: int, about: Sequence[float] = (0, 0, 0)) -> Soup:
    """Turn a mesh about an axis (0: x, 1: y, 2: z) through a point."""
    t = np.radians(degrees)
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, i], matrix[i, j], matrix[j, i], matrix[j, j] = (
        np.cos(t),
        -np.sin(t),
        np.sin(t),
        np.cos(t),
    )
    return (soup - np.asarray(about)) @ matrix.T + np.asarray(about)


def corner_normals(soup: Soup) -> Soup:
    """Return a unit normal per corner: the mean over adjacent faces at less than the crease angle."""
    face = np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0])
    unit = face / np.linalg.norm(face, axis=1, keepdims=True)
    _, place = np.unique(np.round(soup.reshape(-1, 3), 5) + 0.0, axis=0, return_inverse=True)
    order, sizes = np.argsort(place.ravel(), kind="stable"), np.bincount(place.ravel())
    starts = np.cumsum(sizes) - sizes
    result = np.zeros((soup.shape[0] * 3, 3))
    for size in np.unique(sizes):
        rows = order[starts[sizes == size][:, None] + np.arange(size)]
        near = np.einsum("gik,gjk->gij", unit[rows // 3], unit[rows // 3]) > np.cos(
            np.radians(CREASE_DEGREES)
        )
        result[rows] = near.astype(np.float64) @ face[rows // 3]
    return (result / np.linalg.norm(result, axis=1, keepdims=True)).reshape(soup.shape)


def planar_uv(soup: Soup) -> Soup:
    """Return texture coordinates ``(n, 3, 2)``: each face along its main axis, one unit per unit of length."""
    face = np.abs(np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0]))
    axes = np.array([(1, 2), (0, 2), (0, 1)])[face.argmax(1)]
    return np.take_along_axis(soup, axes[:, None, :].repeat(3, 1), axis=2)


Role = Literal["body", "dark", "pale", "steel", "glow", "board"]


@dataclass(frozen=True, slots=True)
class ShapePiece:
    """Piece of a thing; ``body`` has the thing's colour and material, other roles have their own."""

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
    "cone": [(0, 0), *arc((0.32, 0.03), 0.03, (-90, 45), 5), *arc((0, 0.74), 0.03, (25, 90), 4)],
    "vase": [
        *(
            (0, 0),
            (0.17, 0),
            (0.19, 0.02),
            (0.25, 0.12),
            (0.29, 0.24),
            (0.29, 0.34),
            (0.24, 0.46),
            (0.15, 0.58),
        ),
        *(
            (0.11, 0.67),
            (0.11, 0.74),
            (0.15, 0.82),
            (0.165, 0.84),
            (0.14, 0.82),
            (0.09, 0.74),
            (0.09, 0.6),
            (0, 0.5),
        ),
    ],
    "bowl": [
        *((0, 0), (0.16, 0), (0.17, 0.03), *arc((0, 0.42), 0.38, (-63, -8), 8)),
        *arc((0, 0.42), 0.34, (-8, -90), 9),
    ],
}
"""Profiles of the shapes that are turned on a lathe."""


def _ring(_: str | None) -> list[ShapePiece]:
    angles = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    path = np.stack([0.3 * np.cos(angles), 0.3 * np.sin(angles), np.full(40, 0.11)], axis=1)
    return [ShapePiece("body", tube(path, 0.11, closed=True, sides=18))]


def _mug(_: str | None) -> list[ShapePiece]:
    wall = [
        (0, 0),
        *arc((0.22, 0.03), 0.03, (-90, 0), 4),
        (0.25, 0.5),
        (0.235, 0.515),
        (0.22, 0.5),
        (0.215, 0.08),
    ]
    t = np.linspace(-np.pi / 2, np.pi / 2, 12)
    handle = np.stack([0.23 + 0.16 * np.cos(t), np.zeros(12), 0.27 + 0.14 * np.sin(t)], axis=1)
    return [ShapePiece("body", np.concatenate([lathe([*wall, (0, 0.06)]), tube(handle, 0.035)]))]


def _teapot(_: str | None) -> list[ShapePiece]:
    body = lathe([(0, 0), (0.2, 0), *arc((0, 0.27), 0.33, (-48, 62), 12), (0.1, 0.55), (0, 0.57)])
    knob = ball((0, 0, 0.6), 0.055, steps=10)
    spout = np.array([(0, -0.26, 0.2), (0, -0.37, 0.26), (0, -0.44, 0.37), (0, -0.5, 0.5)])
    t = np.linspace(-np.pi / 2.2, np.pi / 2.2, 12)
    handle = np.stack([np.zeros(12), 0.27 + 0.17 * np.cos(t), 0.3 + 0.15 * np.sin(t)], axis=1)
    return [
        ShapePiece("body", np.concatenate([body, knob, tube(spout, 0.05), tube(handle, 0.035)]))
    ]


def _box(pose: str | None) -> list[ShapePiece]:
    walls = [((0, 0, 0.02), (0.78, 0.58, 0.04))]
    walls += [((0, y, 0.2), (0.78, 0.04, 0.4)) for y in (-0.27, 0.27)]
    walls += [((x, 0, 0.2), (0.04, 0.58, 0.4)) for x in (-0.37, 0.37)]
    lid = rounded_box((0, 0, 0.44), (0.84, 0.64, 0.08), 0.02)
    if pose == "with its lid open":
        lid = turned(lid, -105.0, axis=0, about=(0, 0.3, 0.42))
    inside = rounded_box((0, 0, 0.05), (0.7, 0.5, 0.02), 0.005)
    return [
        ShapePiece("body", np.concatenate([*(rounded_box(c, s, 0.015) for c, s in walls), lid])),
        ShapePiece("dark", inside),
    ]


def _book(pose: str | None) -> list[ShapePiece]:
    if pose == "lying closed":
        covers = [rounded_box((0, 0, z), (0.56, 0.76, 0.03), 0.012) for z in (0.015, 0.155)]
        spine = rounded_box((-0.27, 0, 0.085), (0.03, 0.76, 0.17), 0.012)
        pages = rounded_box((0.005, 0, 0.085), (0.5, 0.7, 0.11), 0.01)
        return [ShapePiece("body", np.concatenate([*covers, spine])), ShapePiece("pale", pages)]
    covers = rounded_box((0, 0, 0.015), (1.16, 0.76, 0.03), 0.012)
    x = np.linspace(0, 0.54, 9)
    rise = 0.05 + 0.07 * np.sin(np.pi * np.sqrt(x / 0.54)) * (1 - x / 0.7)
    pages = [_sheet(np.stack([side * x, rise], axis=1), 0.7) for side in (-1.0, 1.0)]
    return [ShapePiece("body", covers), ShapePiece("pale", np.concatenate(pages))]


def _sheet(curve: Soup, depth: float) -> Soup:
    front = np.stack([curve[:, 0], np.full(len(curve), -depth / 2), curve[:, 1]], axis=1)
    low, back = front * (1, 1, 0) + (0, 0, 0.03), (0, depth, 0)
    soup = triangles_of_grid(np.stack([low, front, front + back, low + back, low]))
    edge = triangles_of_grid(
        np.stack([low[-1:], front[-1:], front[-1:] + back, low[-1:] + back]).repeat(2, 1)
    )
    side = triangles_of_grid(
        np.stack([np.stack([low[-1], low[-1] + back]), np.stack([front[-1], front[-1] + back])])
    )
    soup = np.concatenate([soup, edge, side])
    return soup if curve[-1, 0] < 0 else soup[:, ::-1]


def _lamp(pose: str | None) -> list[ShapePiece]:
    foot = lathe([(0, 0), *arc((0.24, 0.03), 0.03, (-90, 90), 6), (0, 0.07)])
    elbow, neck = (0.0, 0.2, 0.52), (0.0, -0.08, 0.92)
    arms = [tube(np.linspace(a, b, 3), 0.026) for a, b in (((0, 0, 0.04), elbow), (elbow, neck))]
    joints = [ball(place, 0.045, steps=8) for place in (elbow, neck)]
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
    bulb = ball((0, 0, -0.09), 0.075, steps=10)
    tilt = -82.0 if pose == "with its head raised" else -12.0
    head, bulb = (turned(part, tilt, axis=0) + np.array((0, -0.12, 0.9)) for part in (cup, bulb))
    steel = np.concatenate([*arms, *joints])
    return [
        ShapePiece("body", np.concatenate([foot, head])),
        ShapePiece("steel", steel),
        ShapePiece("glow", bulb),
    ]


def _chair(_: str | None) -> list[ShapePiece]:
    feet = [(x, y) for x in (-0.21, 0.21) for y in (-0.21, 0.21)]
    legs = [tube(np.linspace((x * 1.08, y * 1.08, 0), (x, y, 0.42), 3), 0.032) for x, y in feet]
    posts = [tube(np.linspace((x, 0.22, 0.42), (x, 0.29, 0.92), 3), 0.032) for x in (-0.21, 0.21)]
    seat = rounded_box((0, 0, 0.44), (0.54, 0.54, 0.07), 0.025)
    rests = [
        turned(rounded_box((0, 0.27, z), (0.48, 0.04, 0.12), 0.018), 0, axis=0)
        for z in (0.64, 0.83)
    ]
    return [ShapePiece("body", np.concatenate([*legs, *posts, seat, *rests]))]


def _robot(pose: str | None) -> list[ShapePiece]:
    trunk = rounded_box((0, 0, 0.42), (0.4, 0.28, 0.38), 0.05)
    head = rounded_box((0, 0, 0.8), (0.3, 0.26, 0.24), 0.05)
    legs = [rounded_box((x, 0, 0.13), (0.13, 0.18, 0.26), 0.03) for x in (-0.11, 0.11)]
    sign = 1.0 if pose == "with its arms raised" else -1.0
    arms = [
        tube(np.linspace((x * 0.22, 0, 0.54), (x * 0.36, 0, 0.54 + sign * 0.32), 4), 0.05)
        for x in (-1, 1)
    ]
    hands = [ball((x * 0.37, 0, 0.54 + sign * 0.34), 0.07, steps=10) for x in (-1, 1)]
    eyes = [ball((x, -0.125, 0.83), 0.045, steps=8) for x in (-0.075, 0.075)]
    chest = rounded_box((0, -0.14, 0.45), (0.24, 0.03, 0.18), 0.012)
    rod = tube(np.array([(0, 0, 0.9), (0, 0, 0.97), (0, 0, 1.02)]), 0.015)
    aerial = np.concatenate([rod, ball((0, 0, 1.03), 0.035, steps=8)])
    body = np.concatenate([trunk, head, *legs, *arms, *hands])
    return [
        ShapePiece("body", body),
        ShapePiece("dark", np.concatenate(eyes)),
        ShapePiece("pale", chest),
        ShapePiece("steel", aerial),
    ]


def _car(_: str | None) -> list[ShapePiece]:
    hull = rounded_box((0, 0, 0.23), (0.46, 1.0, 0.22), 0.08)
    cabin = rounded_box((0, 0.08, 0.41), (0.38, 0.5, 0.22), 0.07)
    glass = [
        rounded_box((0, 0.08, 0.425), (*size, 0.11), 0.03) for size in ((0.386, 0.38), (0.3, 0.506))
    ]
    tyre = lathe(
        [(0, -0.05), (0.11, -0.05), (0.125, -0.03), (0.125, 0.03), (0.11, 0.05), (0, 0.05)]
    )
    wheels = [
        turned(tyre, 90, axis=1) + np.array((x, y, 0.125))
        for x in (-0.22, 0.22)
        for y in (-0.3, 0.3)
    ]
    lights = [ball((x, -0.495, 0.25), 0.05, stretch=(1, 0.5, 1), steps=8) for x in (-0.14, 0.14)]
    dark = np.concatenate([*wheels, *glass])
    return [
        ShapePiece("body", np.concatenate([hull, cabin])),
        ShapePiece("dark", dark),
        ShapePiece("glow", np.concatenate(lights)),
    ]


def _duck(_: str | None) -> list[ShapePiece]:
    body = ball((0, 0.05, 0.24), 0.3, stretch=(0.88, 1.2, 0.8), steps=18)
    head = ball((0, -0.2, 0.58), 0.19, steps=16)
    tail = turned(lathe([(0, -0.1), (0.12, -0.1), (0, 0.2)]), -50, axis=0) + np.array(
        (0, 0.34, 0.34)
    )
    wings = [ball((x, 0.08, 0.3), 0.17, stretch=(0.35, 1.1, 0.7), steps=12) for x in (-0.25, 0.25)]
    beak = ball((0, -0.4, 0.55), 0.1, stretch=(0.85, 1, 0.4), steps=10)
    eyes = [ball((x, -0.34, 0.65), 0.032, steps=8) for x in (-0.09, 0.09)]
    duck = np.concatenate([body, head, tail, *wings])
    return [
        ShapePiece("body", duck),
        ShapePiece("glow", beak),
        ShapePiece("dark", np.concatenate(eyes)),
    ]


def _sign(_: str | None) -> list[ShapePiece]:
    post = tube(np.linspace((0, 0.03, 0.02), (0, 0.03, 0.4), 3), 0.035)
    foot = lathe([(0, 0), *arc((0.19, 0.03), 0.03, (-90, 90), 6), (0, 0.06)])
    frame = rounded_box((0, 0.0, 0.58), (0.9, 0.06, 0.47), 0.025)
    corners = np.array(
        [
            [(-0.42, -0.034, 0.37), (0.42, -0.034, 0.37)],
            [(-0.42, -0.034, 0.79), (0.42, -0.034, 0.79)],
        ]
    )
    board = triangles_of_grid(corners)[:, ::-1]
    return [
        ShapePiece("body", np.concatenate([frame, foot])),
        ShapePiece("steel", post),
        ShapePiece("board", board),
    ]


FORMS: dict[str, Callable[[str | None], list[ShapePiece]]] = {
    **{shape: lambda _, profile=profile: [ShapePiece("body", lathe(profile))] for shape, profile in ROUND.items()},
    "ball": lambda _: [ShapePiece("body", ball((0, 0, 0.34), 0.34))],
    "cube": lambda _: [ShapePiece("body", rounded_box((0, 0, 0.29), (0.58, 0.58, 0.58), 0.045))],
    "pyramid": lambda _: [ShapePiece("body", lathe([(0, 0), (0.44, 0), (0.44, 0.05), (0, 0.7)], sides=4, turn=np.pi / 4))],
} | {
    "ring": _ring, "mug": _mug, "teapot": _teapot, "box": _box, "book": _book, "lamp": _lamp, "chair": _chair,
    "robot": _robot, "car": _car, "duck": _duck, "sign": _sign,
}  # fmt: skip


@lru_cache(maxsize=256)
def form_of(shape: str, pose: str | None) -> tuple[ShapePiece, ...]:
    """Return the parts of a shape in a pose, lowered or lifted to stand on z = 0."""
    parts = FORMS[shape](pose)
    floor = min(float(part.soup[..., 2].min()) for part in parts)
    return tuple(
        ShapePiece(part.role, part.soup + np.array((0, 0, -floor)), corner_normals(part.soup))
        for part in parts
    )


@lru_cache(maxsize=256)
def extent_of(
    shape: str, pose: str | None
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Return the centre and the half sides of the footprint (x, y), and the height."""
    corners = np.concatenate([part.soup.reshape(-1, 3) for part in form_of(shape, pose)])
    low, high = corners.min(0), corners.max(0)
    centre, half = (low + high) / 2, (high - low) / 2
    return (float(centre[0]), float(centre[1])), (float(half[0]), float(half[1])), float(high[2])
