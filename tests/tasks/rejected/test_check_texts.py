"""Likeness and truth, as the makers of rejected texts share them."""

from dataclasses import replace

import pytest

from pairwright.schemas.claims import Claim, Selector
from pairwright.tasks.rejected.check_texts import KnownContent, is_as_true, text_cosine, truth_of
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, image_row, pair_row, thing

BALL = (graph(thing(colour="red")), graph(thing(colour="blue"), thing("b", "cube", "green")))
FULL_AND_EMPTY = (graph(thing()), graph())
MOVED = (graph(thing(column="left")), graph(thing(column="right")))
RED_BALL_GONE = Claim(side=1, kind="absent", selector=Selector(shape="ball", colour="red"))


@pytest.mark.parametrize(
    ("first", "second", "cosine"),
    [
        ("a red ball", "A red, ball", 1),
        ("red ball", "ball red", 2 / 3),  # words red, ball shared; pairs "red ball", "ball red" not
        ("red ball", "blue cube", 0),
        ("red red", "red", 2 / 5**0.5),  # counts red 2, "red red" 1 against red 1
        ("", "red", 0),
    ],
)
def test_text_cosine_is_of_words_and_word_pairs(first, second, cosine) -> None:
    assert text_cosine(first, second) == pytest.approx(cosine, abs=1e-9)


def one_on(side):
    return Claim(side=side, kind="count", count=1)


def ball(colour, column=None):
    selector = Selector(shape="ball", colour=colour, column=column)
    return Claim(side=0, kind="exists", selector=selector)


LOOK_UPS = {
    "no graphs": (None, (one_on(0),), None),
    "no claims": (FULL_AND_EMPTY, (), None),
    "true": (FULL_AND_EMPTY, (one_on(0),), True),
    "false": (FULL_AND_EMPTY, (one_on(1),), False),
    # "The red ball on the left is gone": words may deny only a ball on the left.
    "moved": (MOVED, (ball("red", "left"), RED_BALL_GONE), True),
    "still there": (MOVED, (ball("red"), RED_BALL_GONE), False),
    "another ball": (MOVED, (ball("blue", "left"), RED_BALL_GONE), False),
}


@pytest.mark.parametrize(("graphs", "claims", "truth"), LOOK_UPS.values(), ids=LOOK_UPS)
def test_claims_are_looked_up_in_the_graphs(graphs, claims, truth) -> None:
    assert KnownContent(graphs).judge(claims) is truth


def test_what_is_known_comes_from_the_pair_and_both_images() -> None:
    pair = replace(pair_row("a", "b"), human_differences=("a man left",))
    row = description("shows a dog", "shows a cat", subject=pair.key)
    images = {key: image_row(key, scene) for key, scene in zip("ab", BALL, strict=True)}
    assert truth_of(row, {pair.key: pair}, images) == KnownContent(BALL, ("a man left",))
    assert truth_of(row, {pair.key: pair}, {}) == KnownContent(None, ("a man left",))
    assert truth_of(row, {}, images) == KnownContent(None)


@pytest.mark.parametrize(
    ("halves", "truth"),
    [
        (("a red ball", "a blue ball"), True),
        (("a red ball", "no blue ball"), False),
        (("two red balls", "a blue ball"), False),
        (("a red ball with dots", "a blue ball"), None),
    ],
)
def test_texts_without_claims_are_read(halves, truth) -> None:
    assert KnownContent(BALL).of_words(halves) is truth
    assert KnownContent(None).of_words(halves) is None


MAN = description("shows a tall man on a beach", "shows an empty beach")
LADY = description("shows a lady on the beach", "has an empty beach")
SAME = description("shows a street", "shows the same view, unchanged", no_change=True)
WOMAN = ("a woman on a beach", "an empty beach")


REPEATS = {
    "less than the chosen text": (("a man", "a beach"), (MAN,), (), True),
    "something else": (WOMAN, (MAN,), (), None),
    "another description": (WOMAN, (MAN, LADY), (), True),
    "a person": (WOMAN, (MAN,), ("The woman left the beach empty.",), True),
    "no change": (("a road", "an identical road"), (SAME,), (), True),
    "a change": (("a road", "a road with a bus"), (SAME,), (), None),
}


@pytest.mark.parametrize(("halves", "rows", "people", "truth"), REPEATS.values(), ids=REPEATS)
def test_a_text_is_as_true_as_what_it_repeats(halves, rows, people, truth) -> None:
    assert is_as_true(halves, rows, KnownContent(None, people)) is truth
