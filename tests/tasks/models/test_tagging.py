"""What a rendered scene says is in it."""

from dataclasses import replace

import numpy as np

from pairwright.schemas.rows import Tag
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.tagging import SceneTagger
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
