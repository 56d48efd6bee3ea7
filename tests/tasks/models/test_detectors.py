"""Which detector a profile has, and what it needs."""

import pytest

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.detection import SceneDetector
from pairwright.tasks.models.detectors import count_detectors, has_weights, make_detector, pin_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding.detector import GroundingDino

SCENES = DetectionConfig()
DINO = DetectionConfig(detector="grounding-dino", model="./nowhere", batch_size=3)


def test_scenes_have_their_own():
    assert make_detector(SCENES, batch=5) == SceneDetector()
    assert not has_weights(SCENES)
    assert not make_detector(SCENES).looks
    assert pin_detector(SCENES) is SCENES
    assert count_detectors(SCENES) is None


def test_photographs_have_one_with_weights():
    assert make_detector(DINO) == GroundingDino(config=DINO)
    assert make_detector(DINO).looks
    assert make_detector(DINO, batch=0) == GroundingDino(config=DINO.model_copy(update={"batch_size": 0}))
    assert has_weights(DINO)
    assert count_detectors(DINO) == count_gpus()
    with pytest.raises(ModelError, match="nowhere"):
        pin_detector(DINO)
