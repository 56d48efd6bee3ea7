"""Meshes: grids, lathes, boxes, tubes, balls; their normals and texture coordinates.

Reads and writes nothing. A mesh is a soup of triangles, float64 of shape ``(n, 3, 3)``: corner,
then x, y, z.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Soup = NDArray[np.float64]
Floats = NDArray[np.float64]
Profile = Sequence[tuple[float, float]]
CREASE_DEGREES = 46.0  # faces that meet at a larger angle have an edge between them


def triangles_of_grid(points: Soup) -> Soup:
    """Return two triangles per cell of a grid of points ``(rows, columns, 3)``, none empty."""
    a = points[:-1, :-1]
    b = points[1:, :-1]
    c = points[1:, 1:]
    d = points[:-1, 1:]
    lower = np.stack([a, b, c], axis=-2).reshape(-1, 3, 3)
    upper = np.stack([a, c, d], axis=-2).reshape(-1, 3, 3)
    soup = np.concatenate([lower, upper])
    areas = np.linalg.norm(_face_vectors(soup), axis=1)
    return soup[areas > 1e-10]


def _face_vectors(soup: Soup) -> Soup:
    """Return the normal of each face, as long as the face's parallelogram is large."""
    return np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0])


def lathe(profile: Profile, *, sides: int = 56, turn: float = 0.0) -> Soup:
    """Turn a profile of (radius, height), listed from the bottom up, around the z axis."""
    radius, height = np.array(profile, dtype=np.float64).T
    angles = np.linspace(0.0, 2 * np.pi, sides + 1) + turn
    x = radius[:, None] * np.cos(angles)
    y = radius[:, None] * np.sin(angles)
    z = height[:, None].repeat(sides + 1, 1)
    return triangles_of_grid(np.stack([x, y, z], axis=-1))[:, ::-1]


def arc(
    centre: tuple[float, float],
    radius: float,
    degrees: tuple[float, float],
    steps: int = 8,
) -> list[tuple[float, float]]:
    """Return the points of an arc of a profile; 0 degrees point outwards, 90 up."""
    points: list[tuple[float, float]] = []
    for angle in np.radians(np.linspace(*degrees, steps)):
        outwards = centre[0] + radius * float(np.cos(angle))
        up = centre[1] + radius * float(np.sin(angle))
        points.append((max(0.0, outwards), up))
    return points


def ball(
    centre: Sequence[float],
    radius: float,
    *,
    stretch: Sequence[float] = (1, 1, 1),
    steps: int = 26,
) -> Soup:
    """Return a sphere, or an ellipsoid where it is stretched."""
    profile = arc((0.0, 0.0), radius, (-90.0, 90.0), steps)
    sphere = lathe(profile, sides=2 * steps)
    return sphere * np.asarray(stretch) + np.asarray(centre)


def rounded_box(centre: Sequence[float], size: Sequence[float], bevel: float) -> Soup:
    """Return a box with rounded edges."""
    half = np.asarray(size, dtype=np.float64) / 2
    inner = half - bevel
    faces: list[Soup] = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            face = _rounded_face(
                axis,
                sign,
                half=half,
                inner=inner,
            )
            faces.append(face if sign > 0 else face[:, ::-1])
    return np.concatenate(faces) + np.asarray(centre)


def _rounded_face(
    axis: int,
    sign: float,
    *,
    half: Floats,
    inner: Floats,
) -> Soup:
    """Return one side of a rounded box; ``inner``: half of the box without its bevels."""
    edges = half - inner
    across = (axis + 1) % 3
    up = (axis + 2) % 3
    grid = np.empty((8, 8, 3))
    grid[..., axis] = sign * half[axis]
    grid[..., across] = _ticks(half[across], edges[across])[:, None]
    grid[..., up] = _ticks(half[up], edges[up])[None, :]
    core = np.clip(grid, -inner, inner)
    outward = grid - core
    rounded = core + edges * outward / np.linalg.norm(outward, axis=-1, keepdims=True)
    return triangles_of_grid(rounded)


def _ticks(half: float, edge: float) -> Floats:
    """Return the eight grid lines of a rounded side, dense along its edges."""
    ease = np.array([0.0, 0.42, 0.75, 1.0])
    return np.concatenate([-half + edge * ease, half - edge * ease[::-1]])


def tube(
    path: Soup,
    radius: float,
    *,
    closed: bool = False,
    sides: int = 14,
) -> Soup:
    """Sweep a circle along a path ``(n, 3)`` that stays in one plane or turns gently."""
    if closed:
        ahead = np.roll(path, -1, 0) - np.roll(path, 1, 0)
    else:
        ahead = np.gradient(path, axis=0)
    ahead = ahead / np.linalg.norm(ahead, axis=1, keepdims=True)
    normal = np.linalg.svd(path - path.mean(0))[2][2]
    side = np.cross(ahead, normal)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    lift = np.cross(side, ahead)
    angles = np.linspace(0, 2 * np.pi, sides + 1)
    across = np.cos(angles)[:, None] * side[:, None]
    up = np.sin(angles)[:, None] * lift[:, None]
    rings = path[:, None] + radius * (across + up)
    if closed:
        return triangles_of_grid(np.concatenate([rings, rings[:1]]))
    start = path[:1, None].repeat(sides + 1, 1)
    end = path[-1:, None].repeat(sides + 1, 1)
    return triangles_of_grid(np.concatenate([start, rings, end]))


def turned(
    soup: Soup,
    degrees: float,
    *,
    axis: int,
    about: Sequence[float] = (0, 0, 0),
) -> Soup:
    """Turn a mesh around an axis (0: x, 1: y, 2: z) through a point."""
    angle = np.radians(degrees)
    i = (axis + 1) % 3
    j = (axis + 2) % 3
    matrix = np.eye(3)
    matrix[i, i] = np.cos(angle)
    matrix[i, j] = -np.sin(angle)
    matrix[j, i] = np.sin(angle)
    matrix[j, j] = np.cos(angle)
    return (soup - np.asarray(about)) @ matrix.T + np.asarray(about)


def corner_normals(soup: Soup) -> Soup:
    """Return a unit normal per corner: the mean of adjacent faces within the crease angle."""
    face = _face_vectors(soup)
    unit = face / np.linalg.norm(face, axis=1, keepdims=True)
    corners = np.round(soup.reshape(-1, 3), 5) + 0.0
    _, vertex = np.unique(corners, axis=0, return_inverse=True)
    order = np.argsort(vertex.ravel(), kind="stable")
    sizes = np.bincount(vertex.ravel())
    starts = np.cumsum(sizes) - sizes
    limit = np.cos(np.radians(CREASE_DEGREES))
    normals = np.zeros((soup.shape[0] * 3, 3))
    # Vertices with as many corners are computed together.
    for size in np.unique(sizes):
        rows = order[starts[sizes == size][:, None] + np.arange(size)]
        units = unit[rows // 3]
        near = np.einsum("gik,gjk->gij", units, units) > limit
        normals[rows] = near.astype(np.float64) @ face[rows // 3]
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return normals.reshape(soup.shape)


def planar_uv(soup: Soup) -> Soup:
    """Return texture coordinates ``(n, 3, 2)``: each face along its main axis, in its length."""
    face = np.abs(_face_vectors(soup))
    axes = np.array([(1, 2), (0, 2), (0, 1)])[face.argmax(1)]
    return np.take_along_axis(soup, axes[:, None, :].repeat(3, 1), axis=2)
