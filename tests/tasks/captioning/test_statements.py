"""Statements: which objects differ, and the mentions that tell two photographs apart."""

from random import Random

from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.statements import (
    Contrast,
    Mention,
    describe,
    find_contrasts,
    picked,
    tells_apart,
    word_contrast,
)
from tests.fixtures.graphs import graph, thing

RED, CUBE = thing("a"), thing("b", "cube", "green")
BLUE = thing("a", colour="blue", size="large")


def changed(kind, **names):
    return (SceneChange(type=kind, **names),)


def test_changed_attributes_in_one_world():
    (found,) = find_contrasts((graph(RED, CUBE), graph(BLUE, CUBE, changes=changed("colour", object_id="a"))))
    assert found == Contrast(RED, BLUE)
    assert found.changed == ("colour", "size")


def test_what_one_photograph_lacks():
    gone = changed("disappearance", object_id="b")
    assert find_contrasts((graph(RED, CUBE), graph(RED, changes=gone))) == [Contrast(CUBE, None)]
    assert find_contrasts((graph(RED, changes=gone), graph(RED, CUBE))) == [Contrast(None, CUBE)]
    assert Contrast(CUBE, None).changed == ()


def test_what_only_the_viewpoint_did_is_no_contrast():
    turned = thing("b", "cube", "green", column="right", size="large")
    second = graph(turned, changes=(*changed("viewpoint"), *changed("colour", object_id="a")))
    assert find_contrasts((graph(RED, CUBE), second)) == [Contrast(RED, None)]


def test_changes_on_both_sides_and_equal_ones():
    first = graph(BLUE, CUBE, changes=changed("colour", object_id="a"))
    second = graph(RED, changes=changed("disappearance", object_id="b"))
    assert find_contrasts((first, second)) == [Contrast(BLUE, RED), Contrast(CUBE, None)]
    assert find_contrasts((first, first)) == []


def test_two_worlds_are_compared_by_looks():
    other = graph(thing("x"), thing("y", "mug"), world="v")
    assert find_contrasts((graph(RED, CUBE), other)) == [Contrast(CUBE, None), Contrast(None, other.objects[1])]


SMALL, LARGE = thing("a"), thing("b", size="large", column="right")


def worded(contrast, graphs):
    return [word_contrast(contrast, graphs, Random(seed)) for seed in range(30)]


def test_a_denial_is_as_brief_as_is_true():
    """Another red metal ball is left: only with its size is it true that there is none."""
    graphs = (graph(SMALL, LARGE), graph(LARGE))
    for here, there in worded(Contrast(SMALL, None), graphs):
        assert there == Mention(1, describe(SMALL, "size"), 0)
        assert here.selector.size == "small"


def test_twins_are_counted():
    twins = [thing(name, column="left") for name in "abc"]
    graphs = (graph(*twins), graph(*twins[:2]))
    assert set(worded(Contrast(twins[2], None), graphs)) == {
        (Mention(0, describe(SMALL), 3), Mention(1, describe(SMALL), 2))
    }


def test_what_words_cannot_tell_apart_has_none():
    assert set(worded(Contrast(SMALL, SMALL), (graph(SMALL), graph(SMALL)))) == {None}


def test_like_things_are_worded_once():
    """Two of three balls vanish: that is one statement about their number, not two denials."""
    balls = [thing(name) for name in "abc"]
    gone = (SceneChange(type="disappearance", object_id="b"),)
    graphs = (graph(*balls), graph(balls[0], changes=gone))
    assert len(picked([Contrast(ball, None) for ball in balls[1:]], graphs, Random(0), limit=3)) == 1


def test_telling_apart_is_being_false_the_other_way_round():
    graphs = (graph(SMALL, LARGE), graph(LARGE))
    assert tells_apart((Mention(0, describe(SMALL, "size")).claim,), graphs)
    assert not tells_apart((Mention(0, describe(SMALL)).claim,), graphs)
