"""How a contrast is put into words where several ways are open."""

from random import Random

from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.contrast import Contrast
from pairwright.tasks.captioning.statements import Mention, describe
from pairwright.tasks.captioning.word_contrasts import picked, tells_apart, word_contrast
from tests.fixtures.graphs import graph, thing

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


def test_places_are_named_only_where_they_are_equal():
    moved = thing("a", colour="blue", column="right")
    for here, there in worded(Contrast(SMALL, moved), (graph(SMALL), graph(moved))):
        assert here.selector.column is None
        assert there.selector.column is None
        assert there.selector.colour == "blue"


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
