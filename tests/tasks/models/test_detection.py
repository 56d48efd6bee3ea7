"""Where a rendered scene says that its objects are."""

import numpy as np

from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.detection import SceneDetector
from pairwright.tasks.models.prepare_ahead import Seen
from tests.fixtures.graphs import graph, thing

PIXELS = np.zeros((4, 5, 3), dtype=np.uint8)
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
    assert boxes(tag("c"), tag(), tag("a"), seen=[Seen(PIXELS, graph(A)), Seen(PIXELS)]) == [
        (Box(tag=2, score=1.0, x0=1, y0=2, x1=30, y1=40),),
        (),
    ]


def test_it_does_not_look_at_pixels():
    assert not SceneDetector().looks
