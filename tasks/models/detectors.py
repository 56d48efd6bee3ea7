"""Choose the detector that a profile names, for the stages that ask one."""

from pairwright.schemas.config import DetectionConfig
from pairwright.tasks.models.detection import Detector, SceneDetector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding.detector import GroundingDino, check_grounding_dino, pin_grounding_dino


def make_detector(config: DetectionConfig, *, batch: int | None = None) -> Detector:
    """Return the detector that a profile names; it loads its weights when it is first asked, once per process.

    Args:
        config: the profile's `detection`.
        batch: images at once, where it is not the configuration's; 0: found by trying.
    """
    if config.detector == "scene-graph":
        return SceneDetector()
    return GroundingDino(config=config if batch is None else config.model_copy(update={"batch_size": batch}))


def has_weights(config: DetectionConfig) -> bool:
    """Say whether the detector has weights to load, and runs on a GPU where there is one."""
    return config.detector != "scene-graph"


def pin_detector(config: DetectionConfig) -> DetectionConfig:
    """Return the configuration with the revision of the weights that this machine has.

    Raises:
        ModelError: weights or packages are missing (the message says what fetches them), or local ones are damaged.
    """
    if not has_weights(config):
        return config
    pinned = pin_grounding_dino(config, download=config.download)
    check_grounding_dino(pinned)
    return pinned


def count_detectors(config: DetectionConfig) -> int | None:
    """Return how many processes load the model: one per GPU; without one, as many as there are workers."""
    return count_gpus() if has_weights(config) else None
