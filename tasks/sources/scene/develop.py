"""Develop a photograph: take out the noise of few samples, guided by what the renderer knows, and set the tone.

Reads and writes nothing. Works in float32 with a fixed order of operations, so that equal input gives equal bytes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Guide:
    """Be what the renderer knows of each pixel without noise."""

    shape: NDArray[np.int32]
    """Number of the mesh, 0: none."""
    albedo: Plane
    normal: Plane


def _shifted(plane: NDArray, rows: int, columns: int) -> NDArray:
    """Return the plane moved, its edge repeated."""
    high, wide = plane.shape[:2]
    y = np.clip(np.arange(high) + rows, 0, high - 1)
    x = np.clip(np.arange(wide) + columns, 0, wide - 1)
    return plane[y][:, x]


def without_fireflies(light: Plane) -> Plane:
    """Limit each pixel to what the second brightest of its eight neighbours has, times 1.5."""
    value = light.max(axis=-1)
    around = [_shifted(value, dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]
    limit = np.sort(np.stack(around), axis=0)[-2] * np.float32(1.5) + np.float32(0.02)
    return light * np.minimum(1, limit / np.maximum(value, 1e-6))[..., None]


def denoise(light: Plane, guide: Guide, *, strength: float) -> Plane:
    """Average each pixel with those near it that show the same mesh, turned the same way, in the same paint."""
    for step in (1, 2):
        light = _smooth(light, guide, step=step, sigma=strength / step)
    return light


def _smooth(light: Plane, guide: Guide, *, step: int, sigma: float) -> Plane:
    tone = np.sqrt(np.maximum(light, 0)).mean(axis=-1)
    total, weights = light.copy(), np.ones(light.shape[:2], np.float32)
    for dy in range(-2, 3):
        for dx in range(-2, 3):
            if dy == dx == 0:
                continue
            y, x = dy * step, dx * step
            paint = np.abs(_shifted(guide.albedo, y, x) - guide.albedo).sum(axis=-1)
            turn = np.einsum("hwc,hwc->hw", _shifted(guide.normal, y, x), guide.normal)
            step_in_tone = (_shifted(tone, y, x) - tone) / np.float32(sigma)
            weight = np.exp(-(step_in_tone**2) - paint * np.float32(14) - (1 - turn) * np.float32(18))
            weight *= (_shifted(guide.shape, y, x) == guide.shape) * np.float32(0.75 ** (dy * dy + dx * dx))
            total += weight[..., None] * _shifted(light, y, x)
            weights += weight
    return total / weights[..., None]


def tone_map(light: Plane) -> NDArray[np.uint8]:
    """Return sRGB: linear up to 0.6, then a soft shoulder, which keeps hues and saves highlights."""
    knee = np.float32(0.6)
    soft = knee + (1 - knee) * (1 - np.exp(-(light - knee) / (1 - knee)))
    value = np.clip(np.where(light > knee, soft, light), 0, 1)
    srgb = np.where(value <= 0.0031308, 12.92 * value, 1.055 * np.power(value, 1 / 2.4) - 0.055)
    return np.round(srgb * 255).astype(np.uint8)
