"""What a rendered scene says of itself: its tags, where they are and their masks; which detector a profile has."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.detection import SceneDetector, count_detectors, has_weights, make_detector, pin_detector
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.segmentation import SceneSegmenter
from pairwright.tasks.models.tagging import SceneTagger
from pairwright.tasks.store.masks import encode_mask
from tests.fixtures.graphs import graph, thing

PIXELS = np.zeros((4, 5, 3), dtype=np.uint8)


def tags(*things):
    tagger = SceneTagger()
    (found,) = tagger.tag([tagger.prepare(Seen(PIXELS, graph(*things)))])
    return found


def test_each_object_and_each_group_has_a_tag():
    found = tags(thing("a", "ball", "yellow"), thing("b", "ball", "yellow"), thing("c", "cube", "red"))
    assert found == (
        Tag(name="yellow metal ball", score=1.0, tagger="scene-graph", objects=("a",)),
        Tag(name="yellow metal ball", score=1.0, tagger="scene-graph", objects=("b",)),
        Tag(name="red metal cube", score=1.0, tagger="scene-graph", objects=("c",)),
        Tag(name="two yellow balls", score=1.0, tagger="scene-graph", objects=("a", "b")),
        Tag(name="two balls", score=1.0, tagger="scene-graph", objects=("a", "b")),
    )


def test_groups_of_other_colours_go_by_shape():
    found = tags(thing("a", "ball", "red"), thing("b", "ball", "blue"))
    assert [tag.name for tag in found] == ["red metal ball", "blue metal ball", "two balls"]


def test_images_keep_their_order_and_one_without_a_graph_has_none():
    tagger = SceneTagger()
    seen = [Seen(PIXELS, graph(thing("a"))), Seen(PIXELS), Seen(PIXELS, graph()), Seen(PIXELS, graph(thing("b")))]
    found = tagger.tag([tagger.prepare(one) for one in seen])
    assert [[tag.objects for tag in image] for image in found] == [[("a",)], [], [], [("b",)]]
    assert replace(found[0][0], objects=("b",)) == found[3][0]


SCENES = DetectionConfig()
DINO = DetectionConfig(detector="grounding-dino", model="./nowhere", batch_size=3)
A, B = thing("a", box=(1, 2, 30, 40)), thing("b", box=(5, 6, 7, 8))


def tag(*objects):
    return Tag(name="x", score=1.0, tagger="scene-graph", objects=objects)


def boxes(*tags, seen):
    detector = SceneDetector()
    return detector.detect([detector.prepare(one) for one in seen], [tags] * len(seen))


def test_a_tag_has_the_boxes_of_its_objects():
    (found,) = boxes(tag("b"), tag("a", "b"), seen=[Seen(PIXELS, graph(A, B))])
    assert found == (
        Box(tag=0, score=1.0, x0=5, y0=6, x1=7, y1=8),
        Box(tag=1, score=1.0, x0=1, y0=2, x1=30, y1=40),
        Box(tag=1, score=1.0, x0=5, y0=6, x1=7, y1=8),
    )


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


SIZE = (6, 8)
LEFT, RIGHT = np.zeros(SIZE, dtype=bool), np.zeros(SIZE, dtype=bool)
LEFT[1:4, :3] = True
RIGHT[2:5, 5:] = True
THINGS = [thing(name).model_copy(update={"mask": encode_mask(mask)}) for name, mask in [("a", LEFT), ("b", RIGHT)]]
BOTH = graph(*THINGS)


def box(place):
    return Box(tag=place, score=1.0, x0=0, y0=0, x1=1, y1=1)


def masks(*tags, boxes, seen=None):
    segmenter = SceneSegmenter()
    prepared = [segmenter.prepare(seen or Seen(np.zeros((*SIZE, 3), dtype=np.uint8), BOTH))]
    (found,) = segmenter.segment(prepared, [tags], [boxes])
    assert {mask.score for mask in found} == {1.0}
    return [mask.mask for mask in found]


def test_one_mask_per_tag_is_the_union_of_its_objects():
    found = masks(tag("b"), tag("a", "b"), boxes=[box(0), box(1), box(1)])
    np.testing.assert_array_equal(found, [RIGHT, LEFT | RIGHT])


def test_a_tag_without_a_box_or_an_object_has_an_empty_mask():
    found = masks(tag("b"), tag("gone"), tag("a"), boxes=[box(1), box(2)])
    np.testing.assert_array_equal(found, [np.zeros(SIZE), np.zeros(SIZE), LEFT])


def test_a_mask_of_another_size_than_the_image_is_none():
    (found,) = masks(tag("a"), boxes=[box(0)], seen=Seen(np.zeros((3, 8, 3), dtype=np.uint8), BOTH))
    np.testing.assert_array_equal(found, np.zeros((3, 8)))
