"""Detectors of tags: the renderer's boxes for rendered scenes, Grounding DINO for photographs.

A detector works in two steps, like a tagger: ``prepare`` may run in other processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.rows import Box, Tag
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino, pin_grounding_dino
from pairwright.tasks.models.prepare_ahead import Seen


class Detector(Protocol):
    """Detector of tags."""

    @property
    def version(self) -> str:
        """Identity, which changes with its boxes."""
        ...

    @property
    def looks(self) -> bool:
        """Whether it uses pixels, and so can tell whether something is gone."""
        ...

    def prepare(self, seen: Seen) -> Any:
        """Return the input of ``detect`` for one image; picklable."""
        ...

    def detect(self, prepared: Sequence[Any], tags: Sequence[Sequence[Tag]]) -> list[tuple[Box, ...]]:
        """Return the boxes of each prepared image, in its pixels, by tag and then by falling score."""
        ...


@dataclass(frozen=True, slots=True)
class SceneDetector:
    """Detector that returns the boxes of a tag's rendered objects."""

    version: str = "scene graphs 1"
    looks: bool = False

    def prepare(self, seen: Seen) -> SceneGraph | None:
        """Return the graph."""
        return seen.graph

    def detect(self, prepared: Sequence[SceneGraph | None], tags: Sequence[Sequence[Tag]]) -> list[tuple[Box, ...]]:
        """Return one box per object of a tag."""
        return [_boxes(graph, names) if graph else () for graph, names in zip(prepared, tags, strict=True)]


def _boxes(graph: SceneGraph, tags: Sequence[Tag]) -> tuple[Box, ...]:
    corners = {thing.id: thing.box for thing in graph.objects}
    return tuple(
        Box(tag=place, score=1.0, **dict(zip(("x0", "y0", "x1", "y1"), map(float, corners[name]), strict=True)))
        for place, tag in enumerate(tags)
        for name in tag.objects
        if name in corners
    )


def make_detector(config: DetectionConfig, *, batch: int | None = None) -> Detector:
    """Return a profile's detector; ``batch``: images at once, instead of the configuration's."""
    if config.detector == "scene-graph":
        return SceneDetector()
    return GroundingDino(config=config if batch is None else config.model_copy(update={"batch_size": batch}))


def has_weights(config: DetectionConfig) -> bool:
    """Return whether the detector has weights, and so uses a GPU."""
    return config.detector != "scene-graph"


def pin_detector(config: DetectionConfig) -> DetectionConfig:
    """Return the configuration with the revision of the local weights."""
    return pin_grounding_dino(config, download=config.download) if has_weights(config) else config


def count_detectors(config: DetectionConfig) -> int | None:
    """Return how many processes load the model: one per GPU, else one per worker."""
    return count_gpus() if has_weights(config) else None
