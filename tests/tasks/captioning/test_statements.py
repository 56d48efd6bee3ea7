"""Statements: which objects differ, the mentions that tell two photographs apart, and phrases that one object fits."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.phrases import the
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.statements import (
    Contrast,
    Mention,
    describe,
    find_contrasts,
    find_relation,
    find_reversal,
    picked,
    referring,
    tells_apart,
    word_contrast,
)
from tests.fixtures.graphs import PROPERTY, graph, random_world, thing

RED, CUBE = thing("a"), thing("b", "cube", "green")
BLUE = thing("a", colour="blue", size="large")


def changed(kind, **names):
    return (SceneChange(type=kind, **names),)


def test_what_differs_and_what_only_the_viewpoint_did():
    (found,) = find_contrasts((graph(RED, CUBE), graph(BLUE, CUBE, changes=changed("colour", object_id="a"))))
    assert found == Contrast(RED, BLUE)
    assert found.changed == ("colour", "size")
    gone = changed("disappearance", object_id="b")
    assert find_contrasts((graph(RED, CUBE), graph(RED, changes=gone))) == [Contrast(CUBE, None)]
    assert find_contrasts((graph(RED, changes=gone), graph(RED, CUBE))) == [Contrast(None, CUBE)]
    assert Contrast(CUBE, None).changed == ()
    turned = thing("b", "cube", "green", column="right", size="large")
    second = graph(turned, changes=(*changed("viewpoint"), *changed("colour", object_id="a")))
    assert find_contrasts((graph(RED, CUBE), second)) == [Contrast(RED, None)]
    first = graph(BLUE, CUBE, changes=changed("colour", object_id="a"))
    second = graph(RED, changes=changed("disappearance", object_id="b"))
    assert find_contrasts((first, second)) == [Contrast(BLUE, RED), Contrast(CUBE, None)]
    assert find_contrasts((first, first)) == []
    other = graph(thing("x"), thing("y", "mug"), world="v")
    assert find_contrasts((graph(RED, CUBE), other)) == [Contrast(CUBE, None), Contrast(None, other.objects[1])]


MOVED = thing("a", column="right", depth="back")


def test_a_moved_thing_differs_in_its_place_and_others_do_not():
    after = graph(MOVED, CUBE.model_copy(update={"column": "right"}), changes=changed("move", object_id="a"))
    (found,) = find_contrasts((graph(RED, CUBE), after))
    assert found == Contrast(RED, MOVED, moved=True)
    assert found.changed == ("column", "depth")
    first, second = word_contrast(found, (graph(RED, CUBE), after), Random(0))
    assert {first.text, second.text} <= {
        "a red metal ball on the left in the foreground",
        "a small red metal ball on the left in the foreground",
        "a red metal ball on the right in the background",
        "a small red metal ball on the right in the background",
    }


def test_a_move_that_somebody_might_argue_about_has_no_words():
    """Near a border, or where the words stay the same: nothing is said instead of it, either."""
    for one, other in ((RED, MOVED.model_copy(update={"clear": False})), (RED, RED), (thing("a", clear=False), MOVED)):
        graphs = (graph(one, CUBE), graph(other, changes=changed("move", object_id="a")))
        (found,) = find_contrasts(graphs)
        assert set(worded(found, graphs)) == {None}


SMALL, LARGE = thing("a"), thing("b", size="large", column="right")


def worded(contrast, graphs):
    return [word_contrast(contrast, graphs, Random(seed)) for seed in range(30)]


def test_a_denial_is_as_brief_as_is_true():
    """Another red metal ball is left: only with its size is it true that there is none."""
    graphs = (graph(SMALL, LARGE), graph(LARGE))
    for here, there in worded(Contrast(SMALL, None), graphs):
        assert there == Mention(1, describe(SMALL, "size"), 0)
        assert here.selector.size == "small"


def test_twins_are_counted_and_equal_things_have_no_words():
    twins = [thing(name, column="left") for name in "abc"]
    graphs = (graph(*twins), graph(*twins[:2]))
    assert set(worded(Contrast(twins[2], None), graphs)) == {
        (Mention(0, describe(SMALL), 3), Mention(1, describe(SMALL), 2))
    }
    assert set(worded(Contrast(SMALL, SMALL), (graph(SMALL), graph(SMALL)))) == {None}


def test_like_things_are_worded_once():
    """Two of three balls vanish: that is one statement about their number, not two denials."""
    balls = [thing(name) for name in "abc"]
    gone = (SceneChange(type="disappearance", object_id="b"),)
    graphs = (graph(*balls), graph(balls[0], changes=gone))
    assert len(picked([Contrast(ball, None) for ball in balls[1:]], graphs, Random(0), limit=3)) == 1
    balls = [thing(name) for name in "abcd"]
    graphs = (graph(*balls), graph(*balls[:2]))
    pairs = picked([Contrast(ball, None) for ball in balls[2:]], graphs, Random(0))
    assert pairs == [(Mention(0, describe(SMALL), 4), Mention(1, describe(SMALL), 2))]


def test_all_contrasts_of_a_world_are_said_or_none():
    """Four things are painted; with a limit of three one is left out, which is right for two worlds only."""
    before = [thing(name, shape) for name, shape in zip("abcd", ("ball", "cube", "box", "mug"), strict=True)]
    after = [one.model_copy(update={"colour": "blue"}) for one in before]
    contrasts = [Contrast(*both) for both in zip(before, after, strict=True)]
    graphs = (graph(*before), graph(*after))
    assert len(picked(contrasts, graphs, Random(0))) == 4
    assert len(picked(contrasts, graphs, Random(0), limit=3)) == 3
    unsaid = Contrast(before[0], before[0], moved=True)
    assert picked([*contrasts[1:], unsaid], graphs, Random(0)) == []


def test_telling_apart_is_being_false_the_other_way_round():
    graphs = (graph(SMALL, LARGE), graph(LARGE))
    assert tells_apart((Mention(0, describe(SMALL, "size")).claim,), graphs)
    assert not tells_apart((Mention(0, describe(SMALL)).claim,), graphs)


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


def test_relations_hold_and_need_a_clear_gap_and_twins_have_none():
    scene = graph(thing("a"), thing("b"))
    assert referring(scene.objects[0], scene) is None
    assert find_relation(scene.objects[0], scene, Random(0)) is None
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
