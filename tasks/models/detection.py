"""Detectors of boxes for tags: Grounding DINO on photographs, the graphs of rendered scenes."""

from pairwright.schemas.config import DetectionConfig
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino, pin_grounding_dino
from pairwright.tasks.models.scene_models import SceneDetector

Detector = GroundingDino | SceneDetector


def make_detector(config: DetectionConfig) -> Detector:
    """Return a profile's detector."""
    return SceneDetector() if config.detector == "scene-graph" else GroundingDino(config=config)


def count_detectors(config: DetectionConfig) -> int | None:
    """Return how many processes load the model: one per GPU, else one per worker."""
    return None if config.detector == "scene-graph" else count_gpus()


def pin_detector(config: DetectionConfig) -> DetectionConfig:
    """Return the configuration with the revision of this machine's weights, if it needs any."""
    if config.detector == "scene-graph":
        return config
    return pin_grounding_dino(config, download=config.download)
