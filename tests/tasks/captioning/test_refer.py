"""Definite phrases fit one object only, and relations are clear and true."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.phrases import the
from pairwright.tasks.captioning.refer import find_relation, find_reversal, referring
from tests.fixtures.graphs import PROPERTY, graph, random_world, thing


@PROPERTY
@given(st.integers(0, 10**6))
def test_a_referring_phrase_fits_its_object_alone(seed):
    scene = random_world(Random(seed), "w")[0]
    for one in scene.objects:
        selector = referring(one, scene)
        assert selector is None or selector.select(scene) == [one]


def test_the_shortest_phrase_is_taken():
    left, right = thing("a", size="small"), thing("b", size="small", column="right")
    large = thing("c", size="large", column="centre")
    cube = thing("d", "cube")
    scene = graph(left, right, large, cube)
    phrases = [the(referring(one, scene)) for one in (cube, large, left, right)]
    assert phrases == [
        "the red metal cube",
        "the large red metal ball",
        "the red metal ball on the left",
        "the red metal ball on the right",
    ]


def test_twins_cannot_be_told_apart():
    scene = graph(thing("a"), thing("b"))
    assert referring(scene.objects[0], scene) is None
    assert find_relation(scene.objects[0], scene, Random(0)) is None


def test_relations_hold_and_need_a_clear_gap():
    scene = graph(thing("a", box=(100, 0, 120, 9)), thing("b", "cube", box=(120, 0, 140, 9), column="centre"))
    assert find_relation(scene.objects[0], scene, Random(0)) is None
    apart = graph(scene.objects[0], thing("b", "cube", box=(126, 0, 146, 9), column="centre"))
    related = find_relation(apart.objects[0], apart, Random(0))
    assert related is not None
    assert related.words == {"thing": "the red metal ball", "relation": "to the left of", "other": "the red metal cube"}
    assert [claim.kind for claim in related.claims(1)] == ["count", "count", "relation"]


def test_a_reversal_is_of_things_that_both_photographs_name_alike():
    left, right, cube = thing("a"), thing("b", column="right"), thing("c", "cube", column="centre")
    moved = graph(thing("a", column="right"), thing("b"), cube)
    assert find_reversal((graph(left, right, cube), moved), Random(0)) is None
    found = find_reversal((graph(left, cube), graph(moved.objects[0], cube)), Random(0))
    assert found is not None
    assert {found[0].relation, found[1].relation} == {"left of", "right of"}
    assert {the(found[0].thing), the(found[1].other)} == {"the red metal ball", "the red metal cube"}
    assert find_reversal((graph(left, cube), graph(left, cube)), Random(0)) is None
