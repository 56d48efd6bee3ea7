"""The words for what a scene graph holds, against English written by hand."""

import pytest

from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import (
    bare,
    joined,
    plural,
    some,
    spell_number,
    surface,
    tail,
    the,
    with_article,
    within,
)

BALL = Selector(shape="ball", colour="red", material="metal")
SMALL, MEDIUM = (BALL.model_copy(update={"size": size}) for size in ("small", "medium"))
BOX = Selector(shape="box", pose="with its lid open")
ORANGE = BOX.model_copy(update={"colour": "orange"})
SIGN = Selector(shape="sign", text="CAFE", depth="back")
CAR = Selector(shape="car", facing="front", column="centre")
ROBOT = Selector(shape="robot", pose="with its arms raised")
MUG = Selector(shape="mug", rests_on="box", column="left")


@pytest.mark.parametrize(
    ("selector", "count", "words"),
    [
        (BALL, None, "a red metal ball"),
        (BALL, 0, "no red metal ball"),
        (BALL, 3, "three red metal balls"),
        (SMALL, None, "a small red metal ball"),
        (MEDIUM, None, "a medium-sized red metal ball"),
        (ORANGE, None, "an orange box with its lid open"),
        (SIGN, None, "a sign in the background that says 'CAFE'"),
        (CAR, None, "a car in the centre facing the camera"),
        (BOX, 2, "two boxes with their lids open"),
        (BOX, 0, "no box with its lid open"),
        (ROBOT, 3, "three robots with their arms raised"),
        (MUG, None, "a mug on a box on the left"),
        (Selector(), 6, "six objects"),
        (Selector(material="wooden"), 13, "13 wooden objects"),
    ],
)
def test_indefinite_phrases(selector: Selector, count: int | None, words: str) -> None:
    assert some(selector, count) == words


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (the(BALL), "the red metal ball"),
        (the(BALL.model_copy(update={"column": "right"})), "the red metal ball on the right"),
        (tail(BALL), ""),
        (within("a wooden table-top"), "on a wooden table-top"),
        (within("a room corner"), "in a room corner"),
        (within("an unknown place"), "in an unknown place"),
        (bare("an attic"), "attic"),
        (joined([]), ""),
        (joined(["a"]), "a"),
        (joined(["a", "b", "c"]), "a, b and c"),
        (joined(["a", "b"], "or"), "a or b"),
        (" ".join(spell_number(n) for n in (0, 1, 12, 13)), "no one twelve 13"),
        (surface("size", "medium"), "medium-sized"),
        (surface("text", "OPEN"), "that says 'OPEN'"),
        (surface("colour", "red"), "red"),
    ],
)
def test_phrases_places_lists_and_attributes(written: str, words: str) -> None:
    assert written == words


PLURALS = ["ball balls", "box boxes", "bench benches", "berry berries", "toy toys", "glass glasses"]


@pytest.mark.parametrize("both", PLURALS)
def test_plurals(both: str) -> None:
    singular, many = both.split()
    assert plural(singular) == many


@pytest.mark.parametrize("phrase", ["an apple", "an umbrella", "a unit", "a box"])
def test_articles(phrase: str) -> None:
    assert with_article(phrase.partition(" ")[2]) == phrase
