"""Detectors by name: of photographs, the graphs of rendered scenes, plugins'.

They find boxes for the tags of an image.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from pairwright.schemas.config import DetectionConfig, Profile
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.devices import count_processes
from pairwright.tasks.models.grounding_dino import GroundingDino, pin_grounding_dino
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.owlv2 import Owlv2, pin_owlv2
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.scene_models import SceneDetector
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.perception.served_models import FIND_BOXES, ServedDetector
from pairwright.tasks.store.answers import Answers

ImageBoxes = tuple[Box, ...] | ImageFault


@runtime_checkable
class Detector(Protocol):
    """Model that finds boxes for tags."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its boxes."""
        ...

    def prepare(self, image: DecodedImage) -> Any:
        """Return the model's input of one image; may run in another thread."""
        ...

    def detect(
        self, prepared: Sequence[Any], tags: Sequence[Sequence[Tag]]
    ) -> Sequence[ImageBoxes]:
        """Return the boxes of each image's tags, in its pixels, or why there are none."""
        ...


def _make_graph(_: DetectionConfig) -> Detector:
    return SceneDetector()


def _make_grounding_dino(config: DetectionConfig) -> Detector:
    return GroundingDino(config=config)


def _pin_grounding_dino(config: DetectionConfig) -> DetectionConfig:
    return pin_grounding_dino(config, download=config.download)


def _make_owlv2(config: DetectionConfig) -> Detector:
    return Owlv2(config=config)


def _pin_owlv2(config: DetectionConfig) -> DetectionConfig:
    return pin_owlv2(config, download=config.download)


def _make_served(config: DetectionConfig) -> Detector:
    return ServedDetector(config=config)


DETECTORS: ModelRegistry[DetectionConfig, Detector] = ModelRegistry(
    "detectors",
    Detector,
    {
        "scene-graph": OwnModel(_make_graph),
        "grounding-dino": OwnModel(_make_grounding_dino, _pin_grounding_dino),
        "mm-grounding-dino": OwnModel(_make_grounding_dino, _pin_grounding_dino),
        "owlv2": OwnModel(_make_owlv2, _pin_owlv2),
        "served": OwnModel(_make_served),
    },
)
"""All detectors, by name."""


def make_detector(config: DetectionConfig, answers: Answers | None = None) -> Detector:
    """Return a profile's detector; a served one looks its answers up in ``answers``."""
    detector = DETECTORS.make(config.detector, config)
    if isinstance(detector, ServedDetector):
        return replace(detector, answers=answers)
    return detector


def configure_detector(profile: Profile) -> DetectionConfig:
    """Return a profile's settings of the detector, with the served model that it asks, if any."""
    detection = profile.detection
    return profile.complete(detection) if detection.is_served else detection


def name_prompts(config: DetectionConfig) -> tuple[str, ...]:
    """Return the prompts of a served detector."""
    return (FIND_BOXES,) if config.is_served else ()


def _has_weights(config: DetectionConfig) -> bool:
    return DETECTORS.has_weights(config.detector)


def count_detectors(config: DetectionConfig) -> int | None:
    """Return how many processes load the model: one per GPU, else one per worker."""
    return count_processes(_has_weights, config)


def pin_detector(config: DetectionConfig) -> DetectionConfig:
    """Return the configuration with the revision of this machine's weights, if it needs any."""
    return DETECTORS.pin(config.detector, config, download=config.download)
