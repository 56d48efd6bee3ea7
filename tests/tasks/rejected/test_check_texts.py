"""Likeness and truth, as the makers of rejected texts share them."""

from dataclasses import replace

import pytest

from pairwright.schemas.claims import Claim, Selector
from pairwright.tasks.rejected.check_texts import KnownContent, is_as_true, text_cosine, truth_of
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, image_row, pair_row, thing


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
def test_text_cosine_is_of_words_and_word_pairs(first, second, cosine):
    assert text_cosine(first, second) == pytest.approx(cosine, abs=1e-9)


def test_truth_is_looked_up_or_unknown():
    graphs = (graph(thing()), graph())
    claims = (Claim(side=0, kind="count", count=1),)
    assert KnownContent(None).of(claims) is None
    assert KnownContent(graphs).of(()) is None
    assert KnownContent(graphs).of(claims) is True
    assert KnownContent(graphs).of((Claim(side=1, kind="count", count=1),)) is False
    pair = replace(pair_row("a" * 32, "b" * 32), human_differences=("a man left",))
    row = description("shows a dog", "shows a cat", subject=pair.key)
    images = {
        key: image_row(key, scene) for key, scene in zip(("a" * 32, "b" * 32), BALL, strict=True)
    }
    assert truth_of(row, {pair.key: pair}, images) == KnownContent(BALL, ("a man left",))
    assert truth_of(row, {pair.key: pair}, {}) == KnownContent(None, ("a man left",))
    assert truth_of(row, {}, images) == KnownContent(None)


def test_a_thing_that_has_only_moved_may_pass_for_gone():
    # "The red ball on the left is gone": the claim denies any red ball, the words perhaps only one
    # on the left.
    graphs = (graph(thing(colour="red", column="left")), graph(thing(colour="red", column="right")))
    ball = Selector(shape="ball", colour="red")
    there = Claim(side=0, kind="exists", selector=ball.model_copy(update={"column": "left"}))
    assert KnownContent(graphs).of((there, Claim(side=1, kind="absent", selector=ball))) is True
    assert (
        KnownContent(graphs).of(
            (
                there.model_copy(update={"selector": ball}),
                Claim(side=1, kind="absent", selector=ball),
            )
        )
        is False
    )
    blue = there.model_copy(
        update={"selector": Selector(shape="ball", colour="blue", column="left")}
    )
    assert KnownContent(graphs).of((blue, Claim(side=1, kind="absent", selector=ball))) is False


BALL = (graph(thing(colour="red")), graph(thing(colour="blue"), thing("b", "cube", "green")))


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        (("a red ball", "a blue ball"), True),
        (("a red ball", "no blue ball"), False),
        (("two red balls", "a blue ball"), False),
        (("a red ball with dots", "a blue ball"), None),
        (("a giraffe", "a lion"), None),
    ],
)
def test_texts_without_claims_are_read(halves, expected):
    assert KnownContent(BALL).of_words(halves) is expected
    assert KnownContent(None).of_words(halves) is None


def test_a_text_is_as_true_as_what_it_repeats():
    chosen = description("shows a tall man on a beach", "shows an empty beach")
    less, other = ("a man", "a beach"), ("a woman on a beach", "an empty beach")
    assert is_as_true(less, (chosen,), KnownContent(None)) is True
    assert is_as_true(other, (chosen,), KnownContent(None)) is None
    assert (
        is_as_true(
            other,
            (chosen, description("shows a lady on the beach", "has an empty beach")),
            KnownContent(None),
        )
        is True
    )
    assert (
        is_as_true(other, (chosen,), KnownContent(None, ("The woman left the beach empty.",)))
        is True
    )
    chosen = description("shows a street", "shows the same view, unchanged", no_change=True)
    assert is_as_true(("a road", "an identical road"), (chosen,), KnownContent(None)) is True
    assert is_as_true(("a road", "a road with a bus"), (chosen,), KnownContent(None)) is None
