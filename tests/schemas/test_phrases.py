"""The words for what a scene graph holds, against English written by hand."""

import pytest

from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import (
    bare,
    joined,
    number,
    plural,
    some,
    surface,
    tail,
    the,
    with_article,
    within,
)

BALL = Selector(shape="ball", colour="red", material="metal")


@pytest.mark.parametrize(
    ("selector", "count", "words"),
    [
        (BALL, None, "a red metal ball"),
        (BALL, 0, "no red metal ball"),
        (BALL, 3, "three red metal balls"),
        (BALL.model_copy(update={"size": "small"}), None, "a small red metal ball"),
        (BALL.model_copy(update={"size": "medium"}), None, "a medium-sized red metal ball"),
        (
            Selector(shape="box", colour="orange", pose="with its lid open"),
            None,
            "an orange box with its lid open",
        ),
        (
            Selector(shape="sign", text="CAFE", depth="back"),
            None,
            "a sign in the background reading 'CAFE'",
        ),
        (
            Selector(shape="car", facing="front", column="centre"),
            None,
            "a car in the centre facing the viewer",
        ),
        (Selector(shape="box", pose="with its lid open"), 2, "two boxes with their lids open"),
        (Selector(shape="box", pose="with its lid open"), 0, "no box with its lid open"),
        (
            Selector(shape="robot", pose="with its arms raised"),
            3,
            "three robots with their arms raised",
        ),
        (
            Selector(shape="mug", rests_on="box", column="left"),
            None,
            "a mug on top of a box on the left",
        ),
        (Selector(), 6, "six objects"),
        (Selector(material="wooden"), 13, "13 wooden objects"),
    ],
)
def test_indefinite_phrases(selector, count, words):
    assert some(selector, count) == words


def test_phrases_places_lists_and_attributes():
    assert the(BALL) == "the red metal ball"
    assert the(BALL.model_copy(update={"column": "right"})) == "the red metal ball on the right"
    assert tail(BALL) == ""
    assert within("a wooden table-top") == "on a wooden table-top"
    assert within("a room corner") == "in a room corner"
    assert within("an unknown place") == "in an unknown place"
    assert bare("an attic") == "attic"
    assert joined([]) == ""
    assert joined(["a"]) == "a"
    assert joined(["a", "b", "c"]) == "a, b and c"
    assert joined(["a", "b"], "or") == "a or b"
    assert [number(n) for n in (0, 1, 12, 13)] == ["no", "one", "twelve", "13"]
    assert surface("size", "medium") == "medium-sized"
    assert surface("text", "OPEN") == "reading 'OPEN'"
    assert surface("colour", "red") == "red"


@pytest.mark.parametrize("words", ["balls", "boxes", "benches", "berries", "toys", "glasses"])
def test_plurals(words):
    singular = {"berries": "berry", "balls": "ball", "toys": "toy"}.get(words, words[:-2])
    assert plural(singular) == words


@pytest.mark.parametrize("phrase", ["an apple", "an umbrella", "a unit", "a box"])
def test_articles(phrase):
    assert with_article(phrase.partition(" ")[2]) == phrase
