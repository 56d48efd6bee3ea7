"""Choice of a profile's detector: the renderer's boxes for rendered scenes, Grounding DINO for photographs."""

from pairwright.schemas.config import DetectionConfig
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino, pin_grounding_dino
from pairwright.tasks.models.scene_models import Detector, SceneDetector


def make_detector(config: DetectionConfig, *, batch: int | None = None) -> Detector:
    """Return a profile's detector; ``batch``: images at once, instead of the configuration's."""
    if not has_weights(config):
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
