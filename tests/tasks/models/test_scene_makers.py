"""What a rendered scene says of itself: its tags, where they are and their masks; which detector a profile has."""

import numpy as np
import pytest

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.detection import count_detectors, has_weights, make_detector, pin_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.scene_models import SceneDetector, SceneTagger
from tests.fixtures.graphs import graph, thing

PIXELS = np.zeros((4, 5, 3), dtype=np.uint8)


def tags(*things):
    tagger = SceneTagger()
    (found,) = tagger.tag([tagger.prepare(Seen(PIXELS, graph(*things)))])
    return found


def test_groups_of_other_colours_go_by_shape():
    found = tags(thing("a", "ball", "red"), thing("b", "ball", "blue"))
    assert [tag.name for tag in found] == ["red metal ball", "blue metal ball", "two balls"]


SCENES = DetectionConfig()
DINO = DetectionConfig(detector="grounding-dino", model="./nowhere", batch_size=3)
A, B = thing("a", box=(1, 2, 30, 40)), thing("b", box=(5, 6, 7, 8))


def tag(*objects):
    return Tag(name="x", score=1.0, tagger="scene-graph", objects=objects)


def boxes(*tags, seen):
    detector = SceneDetector()
    return detector.detect([detector.prepare(one) for one in seen], [tags] * len(seen))


def test_what_is_not_in_the_graph_has_no_box():
    found = boxes(tag("c"), tag(), tag("a"), seen=[Seen(PIXELS, graph(A)), Seen(PIXELS)])
    assert found == [(Box(tag=2, score=1.0, x0=1, y0=2, x1=30, y1=40),), ()]


def test_scenes_have_their_own():
    assert make_detector(SCENES, batch=5) == SceneDetector()
    assert not has_weights(SCENES)
    assert not make_detector(SCENES).looks
    assert pin_detector(SCENES) is SCENES
    assert count_detectors(SCENES) is None


def test_photographs_have_one_with_weights():
    assert make_detector(DINO) == GroundingDino(config=DINO)
    assert make_detector(DINO, batch=0) == GroundingDino(config=DINO.model_copy(update={"batch_size": 0}))
    assert has_weights(DINO)
    assert count_detectors(DINO) == count_gpus()
    with pytest.raises(ModelError, match="nowhere"):
        pin_detector(DINO)
