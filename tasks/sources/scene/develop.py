"""Develop a photograph: take out the noise of few samples, guided by what the renderer knows, and set the tone.

Reads and writes nothing. Works in float32 with a fixed order of operations, so that equal input gives equal bytes.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Guide:
    """What the renderer knows of each pixel without noise."""

    shape: NDArray[np.int32]
    """Number of the mesh, 0: none."""
    albedo: Plane
    normal: Plane
    matt: NDArray[np.bool_]
    """Pixels of the place, which shines nowhere: a bright speck there is noise."""


def _shifted(plane: NDArray[Number], rows: int, columns: int) -> NDArray[Number]:
    """Return the plane seen from some pixels away, its edge repeated."""
    high, wide = plane.shape[:2]
    y = np.clip(np.arange(high) + rows, 0, high - 1)
    x = np.clip(np.arange(wide) + columns, 0, wide - 1)
    return plane.take(y, axis=0).take(x, axis=1)


def denoise(light: Plane, guide: Guide, *, strength: float) -> Plane:
    """Average each pixel with those near it that show the same surface; edges stay as the samples blended them.

    What is averaged is light over reflectance, so that painted and printed patterns stay sharp; what shines reflects
    more than its paint, so there one number stands for all three channels.
    """
    edge = _edges(guide)
    brightest = np.broadcast_to(guide.albedo.max(axis=-1, keepdims=True), guide.albedo.shape)
    paint = np.where(guide.matt[..., None], guide.albedo, brightest) + np.float32(0.03)
    fall = _without_specks(np.divide(light, paint, dtype=np.float32), guide)
    for reach, step in ((2, 1), (1, 3)):
        fall = _smooth(fall, guide, inner=~edge, taps=_taps(reach, step), sigma=strength)
    return np.where(edge[..., None], _without_outliers(light), fall * paint)


def _without_outliers(light: Plane) -> Plane:
    """Limit each pixel to what two of the nine around it have; lines of one pixel's width stay."""
    around = np.sort([_shifted(light, dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)], axis=0)
    return np.clip(light, around[1], around[7])


def _without_specks(fall: Plane, guide: Guide) -> Plane:
    """Limit each pixel to a little more than its neighbours have: the median where the place is matt."""
    value = fall.max(axis=-1)
    around = np.sort([_shifted(value, dy, dx) for dy, dx in _taps(1, 1)], axis=0)
    limit = np.where(guide.matt, around[4] * np.float32(1.2), around[6] * np.float32(1.5)) + np.float32(0.02)
    return fall * np.minimum(1, limit / np.maximum(value, 1e-6))[..., None]


def _edges(guide: Guide) -> NDArray[np.bool_]:
    """Return the pixels beside which the surface, its direction or its paint changes: they show two things at once."""
    found = np.zeros(guide.shape.shape, bool)
    for rows, columns in _taps(1, 1):
        found |= _shifted(guide.shape, rows, columns) != guide.shape
        found |= np.abs(_shifted(guide.albedo, rows, columns) - guide.albedo).sum(axis=-1) > 0.2
        found |= np.abs(_shifted(guide.normal, rows, columns) - guide.normal).sum(axis=-1) > 0.6
    return found


def _taps(reach: int, step: int) -> list[tuple[int, int]]:
    offsets = range(-reach, reach + 1)
    return [(dy * step, dx * step) for dy in offsets for dx in offsets if dy or dx]


def _smooth(
    light: Plane, guide: Guide, *, inner: NDArray[np.bool_], taps: list[tuple[int, int]], sigma: float
) -> Plane:
    tone = np.sqrt(np.maximum(light, 0)).mean(axis=-1)
    features = np.concatenate([guide.albedo * np.float32(5), guide.normal * np.float32(4)], axis=-1)
    features = np.concatenate([features, (tone / np.float32(sigma))[..., None]], axis=-1)
    packed = np.concatenate([features, inner[..., None], light], axis=-1)
    total, weights = light.copy(), np.ones(light.shape[:2], np.float32)
    for dy, dx in taps:
        other = _shifted(packed, dy, dx)
        away = other[..., :7] - features
        weight = np.exp(-np.einsum("hwc,hwc->hw", away, away)) * other[..., 7]
        weight *= _shifted(guide.shape, dy, dx) == guide.shape
        total += weight[..., None] * other[..., 8:]
        weights += weight
    return total / weights[..., None]


def tone_map(light: Plane) -> NDArray[np.uint8]:
    """Return sRGB: linear up to 0.6, then a soft shoulder, which keeps hues and saves highlights."""
    knee = np.float32(0.6)
    soft = knee + (1 - knee) * (1 - np.exp(-(light - knee) / (1 - knee)))
    value = np.clip(np.where(light > knee, soft, light), 0, 1)
    srgb = np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.power(value, 1 / 2.4) - 0.055)
    return np.round(srgb * 255).astype(np.uint8)
