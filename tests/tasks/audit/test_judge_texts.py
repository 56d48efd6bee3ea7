"""Truth of free texts about planted pairs, by hand."""

import pytest

from pairwright.tasks.audit.judge_texts import Truth, judge_text, use_known_words
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, thing

BALL = thing("a", shape="ball", colour="red", material="metal", column="left")
BLUE = thing("a", shape="ball", colour="blue", material="metal", column="left")
MOVED = thing("a", shape="ball", colour="red", material="metal", column="right")
MUG = thing("b", shape="mug", colour="yellow", material="ceramic", column="right")
WITH_BALL = graph(BALL, MUG)
WITHOUT_BALL = graph(MUG)
RECOLOURED = graph(BLUE, MUG)
SHIFTED = graph(MOVED, MUG)


def judged(first, second, graphs, **values):
    return judge_text(description(first, second, **values), graphs).verdict


GONE = (WITH_BALL, WITHOUT_BALL)
TRUE_TEXTS = [
    ("shows a red ball", "shows no ball", GONE),
    ("shows a red sphere beside the dog", "shows only the dog, without the sphere", GONE),
    ("shows a crimson metallic orb on the left", "does not contain the orb", GONE),
    ("has a red ball and a mug on the table", "has a mug on the table, the ball is gone", GONE),
    ("shows a red ball", "shows a blue ball", (WITH_BALL, RECOLOURED)),
    ("shows a red ball on the left", "shows a red ball on the right", (WITH_BALL, SHIFTED)),
    # The chair is the photograph's own: whether it is there is not judged.
    ("shows a red ball and a chair", "shows a chair but no ball", GONE),
]
FALSE_TEXTS = [
    ("shows no ball", "shows a red ball", GONE),
    ("shows a green ball", "shows no ball", GONE),
    ("shows a red ball and a blue mug", "shows a blue mug", GONE),
    ("shows a dog", "shows a cat", GONE),
    ("shows a wooden chair", "shows no chair", GONE),
    ("shows several things", "shows other things", GONE),
    ("shows a yellow mug", "shows no mug", GONE),
    ("shows a red ball", "shows no ball", (WITH_BALL, WITH_BALL)),
    ("is brighter", "is darker", GONE),
]
POSED = (
    graph(thing("a", shape="box", colour="red", pose="with its lid open"), MUG),
    graph(thing("a", shape="box", colour="red", pose="with its lid closed"), MUG),
)
WRITTEN = (
    graph(thing("a", shape="sign", colour="red", text="STOP"), MUG),
    graph(thing("a", shape="sign", colour="red", text="OPEN"), MUG),
)
TRUE_TEXTS += [
    ("shows a red box with its lid open", "has a red box with its lid closed", POSED),
    ("shows a sign that says 'STOP'", "has a sign that says 'OPEN'", WRITTEN),
]
FALSE_TEXTS += [
    ("shows a red box with its lid closed", "has a red box with its lid open", POSED),
    ("shows a sign that says 'OPEN'", "has a sign that says 'STOP'", WRITTEN),
]
UNCLEAR_TEXTS = [
    ("shows a red toy", "shows nothing there", GONE),
    ("shows a red ball near the door", "shows a red ball near the dog", (WITH_BALL, SHIFTED)),
]


@pytest.mark.parametrize(("first", "second", "graphs"), TRUE_TEXTS)
def test_true_texts(first, second, graphs) -> None:
    assert judged(first, second, graphs) is Truth.TRUE


@pytest.mark.parametrize(("first", "second", "graphs"), FALSE_TEXTS)
def test_false_texts(first, second, graphs) -> None:
    assert judged(first, second, graphs) is Truth.FALSE


@pytest.mark.parametrize(("first", "second", "graphs"), UNCLEAR_TEXTS)
def test_unclear_texts(first, second, graphs) -> None:
    assert judged(first, second, graphs) is Truth.UNCLEAR


def test_the_photograph_itself_may_change() -> None:
    graphs = (graph(MUG, light="dim light"), graph(MUG, light="usual light"))
    assert judged("is darker", "is brighter", graphs) is Truth.TRUE
    assert judged("is brighter", "is darker", graphs) is Truth.FALSE
    blurred = (
        graph(MUG, viewpoint="the usual view"),
        graph(MUG, viewpoint="soft focus"),
    )
    assert judged("is sharper", "is blurry", blurred) is Truth.TRUE


def test_no_change_is_true_of_equal_things_only() -> None:
    unchanged = ("shows a mug", "shows the same image, unchanged")
    assert judged(*unchanged, (WITHOUT_BALL, WITHOUT_BALL), no_change=True) is Truth.TRUE
    changes = [{"type": "disappearance", "object_id": "a"}]
    without = graph(MUG, changes=changes)
    assert judged(*unchanged, (WITH_BALL, without), no_change=True) is Truth.FALSE


def test_a_box_may_be_called_a_cube() -> None:
    graphs = (graph(thing("a", shape="box", colour="red")), graph())
    assert judged("shows a red cube", "is empty", graphs) is Truth.TRUE
    assert judged("shows a red cube", "has no red box", graphs) is Truth.TRUE


def test_plurals_have_synonyms_too() -> None:
    assert use_known_words("two Crimson spheres") == "two red balls"
