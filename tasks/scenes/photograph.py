"""Photograph a scene, and photograph it again without some of its things.

Reads and writes nothing. Needs Mitsuba and Open Image Denoise: import this module only to render.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.scenes.render import Plane, build_scene, develop, expose, survey_colours
from pairwright.tasks.scenes.state import Camera, Scene


@dataclass(frozen=True, slots=True)
class Exposure:
    """Settings of a photograph, which with the versions of renderer and denoiser decide its pixels."""

    scene: Scene
    width: int
    height: int
    samples: int
    seed: int

    @property
    def camera(self) -> Camera:
        """Return the camera."""
        return Camera(self.scene.view, self.width, self.height)

    def without(self, *things: str) -> "Exposure":
        """Return the exposure of the scene without some things."""
        return replace(self, scene=self.scene.without(*things))

    def light(self) -> Plane:
        """Return the noisy light of every pixel; the noise is equal wherever a change of the scene alters nothing."""
        return expose(build_scene(self.scene), self.camera, samples=self.samples, seed=self.seed)

    def take(self, albedo: Plane | None = None) -> NDArray[np.uint8]:
        """Return the picture ``(height, width, 3)``; ``albedo``: the scene's colours, if known."""
        seen = survey_colours(self.scene, self.camera) if albedo is None else albedo
        return develop(self.light(), seen)


EXPOSURES = TypeAdapter(Exposure)


def exposure_of(graph: SceneGraph | None) -> Exposure | None:
    """Return the exposure of a rendered photograph; ``None`` for others.

    Raises:
        ValueError: the graph holds something else.
    """
    return EXPOSURES.validate_json(graph.exposure) if graph and graph.exposure else None
