"""Take photographs: the picture itself, and what the renderer's own object index says is where.

Reads and writes nothing. Needs Mitsuba (imports ``build``): import this module only to render.
"""

from __future__ import annotations  # mi.Scene exists only once a variant is chosen

from dataclasses import dataclass

import mitsuba as mi
import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.sources.scene.build import build_sensor
from pairwright.tasks.sources.scene.camera import Camera, Mask
from pairwright.tasks.sources.scene.develop import Guide, denoise, tone_map

BOUNCES = 3
"""Light that reaches things directly or over one other surface; a fourth costs a fifth more time and shows little."""


@dataclass(frozen=True, slots=True)
class Survey:
    """Be a look at a scene without light: the guide, and which pixels show which thing."""

    guide: Guide
    names: tuple[str, ...]
    """Ids of the meshes: ``names[k]`` has number k + 1 in the guide."""

    def mask(self, thing: str) -> Mask:
        """Return the pixels that show a thing."""
        numbers = [k + 1 for k, name in enumerate(self.names) if name.split("_")[0] == thing]
        return np.isin(self.guide.shape, numbers)

    def changed(self, after: Survey, things: set[str]) -> int:
        """Return how many pixels of these things, before or after, now show something else."""
        region = np.zeros(self.guide.shape.shape, bool)
        for thing in things:
            region |= self.mask(thing) | after.mask(thing)
        old, new = self.guide, after.guide
        other = np.array(["", *self.names])[old.shape] != np.array(["", *after.names])[new.shape]
        other |= np.abs(old.albedo - new.albedo).sum(axis=-1) > 0.2
        other |= np.abs(old.normal - new.normal).sum(axis=-1) > 0.5
        return int((other & region).sum())


def _render(
    scene: mi.Scene, sensor: mi.Sensor, *, integrator: mi.Integrator, seed: int, samples: int
) -> NDArray[np.float32]:
    """Render in passes of one sample where a GPU adds samples in no fixed order, else at once."""
    if str(mi.variant()).startswith("scalar"):
        return np.array(
            mi.render(scene, sensor=sensor, integrator=integrator, seed=mi.UInt32(seed), spp=samples), dtype=np.float32
        )
    total = np.zeros(1, np.float32)
    for k in range(samples):
        one = mi.render(scene, sensor=sensor, integrator=integrator, seed=mi.UInt32(seed + k * 7919), spp=1)
        total = total + np.array(one, dtype=np.float32)
    return total / np.float32(samples)


def survey(built: mi.Scene, camera: Camera, *, seed: int = 0) -> Survey:
    """Look once through every pixel."""
    integrator = mi.load_dict({"type": "aov", "aovs": "a:albedo,n:sh_normal,i:shape_index"})
    seen = _render(built, build_sensor(camera, 1), integrator=integrator, seed=seed, samples=1)
    names = tuple(shape.id() for shape in built.shapes())
    shape = np.round(seen[..., 6]).astype(np.int32)
    place = [k + 1 for k, name in enumerate(names) if name.startswith("place_")]
    return Survey(Guide(shape, seen[..., :3], seen[..., 3:6], np.isin(shape, place)), names)


def expose(built: mi.Scene, camera: Camera, *, samples: int, seed: int) -> NDArray[np.float32]:
    """Gather the light of every pixel."""
    integrator = mi.load_dict({"type": "path", "max_depth": BOUNCES, "rr_depth": 8})
    return _render(built, build_sensor(camera, samples), integrator=integrator, seed=seed, samples=samples)


def develop(light: NDArray[np.float32], guide: Guide, *, samples: int) -> NDArray[np.uint8]:
    """Return the picture."""
    return tone_map(denoise(light, guide, strength=0.9 / samples**0.5))
