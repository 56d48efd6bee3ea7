"""The renderer's masks, one per tag."""

import numpy as np

from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.segmentation import SceneSegmenter
from pairwright.tasks.store.masks import encode_mask
from tests.fixtures.graphs import graph, thing

SIZE = (6, 8)
LEFT, RIGHT = np.zeros(SIZE, dtype=bool), np.zeros(SIZE, dtype=bool)
LEFT[1:4, :3] = True
RIGHT[2:5, 5:] = True
THINGS = [thing(name).model_copy(update={"mask": encode_mask(mask)}) for name, mask in [("a", LEFT), ("b", RIGHT)]]
BOTH = graph(*THINGS)


def tag(*objects):
    return Tag(name="x", score=1.0, tagger="scene-graph", objects=objects)


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
