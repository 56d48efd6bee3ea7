"""Triangle meshes from a few primitives: surfaces of revolution, rounded boxes, tubes and prisms.

Reads and writes nothing. A mesh is a soup of triangles, float64 of shape ``(n, 3, 3)``: corner, then x, y, z.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Soup = NDArray[np.float64]


def triangles_of_grid(points: Soup) -> Soup:
    """Return two triangles per cell of a grid of points ``(rows, columns, 3)``, without those of no area."""
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    soup = np.concatenate(
        [np.stack([a, b, c], axis=-2).reshape(-1, 3, 3), np.stack([a, c, d], axis=-2).reshape(-1, 3, 3)]
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
        np.repeat(height[:, None], sides + 1, 1),
    ]
    return triangles_of_grid(np.stack(rows, axis=-1))[:, ::-1]


def arc(
    centre: tuple[float, float], radius: float, degrees: tuple[float, float], steps: int = 8
) -> list[tuple[float, float]]:
    """Return the points of an arc of a profile; 0 degrees point outwards, 90 up."""
    angles = np.radians(np.linspace(*degrees, steps))
    return [(max(0.0, centre[0] + radius * float(np.cos(t))), centre[1] + radius * float(np.sin(t))) for t in angles]


def ball(centre: Sequence[float], radius: float, *, stretch: Sequence[float] = (1, 1, 1), steps: int = 26) -> Soup:
    """Return a sphere, or an ellipsoid where it is stretched."""
    sphere = lathe(arc((0.0, 0.0), radius, (-90.0, 90.0), steps), sides=2 * steps)
    return sphere * np.asarray(stretch) + np.asarray(centre)


def rounded_box(centre: Sequence[float], size: Sequence[float], bevel: float) -> Soup:
    """Return a box with rounded edges."""
    half = np.asarray(size, dtype=np.float64) / 2
    inner = half - bevel
    faces = [_box_face(half, inner, axis, sign) for axis in range(3) for sign in (-1.0, 1.0)]
    return np.concatenate(faces) + np.asarray(centre)


def _box_face(half: Soup, inner: Soup, axis: int, sign: float) -> Soup:
    bevel = half - inner
    across, up = (axis + 1) % 3, (axis + 2) % 3
    ease = np.array([0.0, 0.42, 0.75, 1.0])
    ticks = [np.concatenate([-half[k] + bevel[k] * ease, half[k] - bevel[k] * ease[::-1]]) for k in (across, up)]
    grid = np.empty((8, 8, 3))
    grid[..., axis] = sign * half[axis]
    grid[..., across], grid[..., up] = ticks[0][:, None], ticks[1][None, :]
    core = np.clip(grid, -inner, inner)
    outward = grid - core
    rounded = core + bevel * outward / np.linalg.norm(outward, axis=-1, keepdims=True)
    soup = triangles_of_grid(rounded)
    return soup if sign > 0 else soup[:, ::-1]


def tube(path: Soup, radius: float, *, closed: bool = False, sides: int = 14) -> Soup:
    """Sweep a circle along a path ``(n, 3)`` that stays in one plane or turns gently."""
    ahead = np.roll(path, -1, 0) - np.roll(path, 1, 0) if closed else np.gradient(path, axis=0)
    ahead = ahead / np.linalg.norm(ahead, axis=1, keepdims=True)
    normal = np.linalg.svd(path - path.mean(0))[2][2]
    side = np.cross(ahead, normal)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    lift = np.cross(side, ahead)
    angles = np.linspace(0, 2 * np.pi, sides + 1)
    rings = path[:, None] + radius * (np.cos(angles)[:, None] * side[:, None] + np.sin(angles)[:, None] * lift[:, None])
    if closed:
        return triangles_of_grid(np.concatenate([rings, rings[:1]]))
    ends = [path[:1, None].repeat(sides + 1, 1), rings, path[-1:, None].repeat(sides + 1, 1)]
    return triangles_of_grid(np.concatenate(ends))


def turned(soup: Soup, degrees: float, *, axis: int, about: Sequence[float] = (0, 0, 0)) -> Soup:
    """Turn a mesh about an axis (0: x, 1: y, 2: z) through a point."""
    t = np.radians(degrees)
    matrix = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix[i, i], matrix[i, j], matrix[j, i], matrix[j, j] = np.cos(t), -np.sin(t), np.sin(t), np.cos(t)
    return (soup - np.asarray(about)) @ matrix.T + np.asarray(about)


def moved(soup: Soup, by: Sequence[float]) -> Soup:
    """Move a mesh."""
    return soup + np.asarray(by, dtype=np.float64)


def corner_normals(soup: Soup, crease_degrees: float = 46.0) -> Soup:
    """Return a unit normal per corner: the mean over the faces that meet there at less than the crease angle."""
    face = np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0])
    unit = face / np.linalg.norm(face, axis=1, keepdims=True)
    order, starts, sizes = _corners_by_place(soup)
    result = np.zeros((soup.shape[0] * 3, 3))
    for size in np.unique(sizes):
        rows = order[starts[sizes == size][:, None] + np.arange(size)]
        near = np.einsum("gik,gjk->gij", unit[rows // 3], unit[rows // 3]) > np.cos(np.radians(crease_degrees))
        result[rows] = near.astype(np.float64) @ face[rows // 3]
    return (result / np.linalg.norm(result, axis=1, keepdims=True)).reshape(soup.shape)


def _corners_by_place(soup: Soup) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    places = np.round(soup.reshape(-1, 3), 5) + 0.0
    _, inverse = np.unique(places, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    sizes = np.bincount(inverse.ravel())
    return order, np.cumsum(sizes) - sizes, sizes


def planar_uv(soup: Soup) -> Soup:
    """Return texture coordinates ``(n, 3, 2)``: each face seen along its main axis, one unit per unit of length."""
    face = np.abs(np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0]))
    axes = np.array([(1, 2), (0, 2), (0, 1)])[face.argmax(1)]
    return np.take_along_axis(soup, axes[:, None, :].repeat(3, 1), axis=2)
