"""What is read of texts about scenes: only claims that they make; the whole only where every word
is understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.claims import Claim, Selector, all_hold
from pairwright.tasks.scenes.read_phrases import read_phrases
from tests.fixtures.descriptions import described, exchanged, truth
from tests.fixtures.graphs import PROPERTY


@PROPERTY
@given(st.integers(0, 10**6))
def test_what_is_read_agrees_with_the_writers_claims(seed) -> None:
    rows, pairs, images = described([seed])
    for row in rows:
        pair = pairs[row.subject]
        graphs = (images[pair.first].graph, images[pair.second].graph)
        assert all_hold(read_phrases(row.first_half, row.second_half).claims, graphs), row.text
        swapped = read_phrases(row.second_half, row.first_half)
        if truth(row, exchanged(row), pairs, images):
            assert all_hold(swapped.claims, graphs), row.text
        elif swapped.understood:
            assert not all_hold(swapped.claims, graphs), row.text


RED_BALL = {"shape": "ball", "colour": "red"}
STREET = Claim(side=0, kind="place", value="a toy street")


def of(kind="exists", count=0, **named):
    return (Claim(side=0, kind=kind, selector=Selector(**named), count=count),)


@pytest.mark.parametrize(
    ("half", "claims"),
    [
        ("a red ball", of(**RED_BALL)),
        ("the shiny red metal balls", of(**RED_BALL, material="metal")),
        ("three small red balls", of("count", 3, **RED_BALL, size="small")),
        ("exactly 3 balls", of("count", 3, shape="ball")),
        ("no red ball", of("absent", **RED_BALL)),
        ("with no sign of any red ball", of("absent", **RED_BALL)),
        ("a scene that lacks any ball", of("absent", shape="ball")),
        ("a red ball but no sign of a mug", of(**RED_BALL) + of("absent", shape="mug")),
        ("a red ball but without any mug", of(**RED_BALL) + of("absent", shape="mug")),
        ("four objects", of("count", 4)),
        ("a ball on the left", of(shape="ball", column="left")),
        ("a ball on the left of a lamp", of(shape="ball") + of(shape="lamp")),
        ("a ball on top of a box in the centre", of(shape="ball", rests_on="box", column="centre")),
        ("a car facing left", of(shape="car", facing="left")),
        ("a sign reading 'STOP'", of(shape="sign", text="STOP")),
        ("a ball on a toy street", (STREET, *of(shape="ball"))),
    ],
)
def test_phrases_become_claims(half, claims) -> None:
    assert read_phrases(half, "").claims == claims


@pytest.mark.parametrize(
    "half",
    [
        "a scene from which the red ball is gone",
        "a cube instead of a ball",
        "a ball that was red",
        "at least two balls",
        "no ball or cube",
        "no balls with dots",
        "a giraffe",
        "the same ball",
        "",
    ],
)
def test_nothing_is_read_of_what_is_not_said_for_sure(half) -> None:
    read = read_phrases(half, "")
    assert read.claims == ()
    assert not read.understood


def test_words_that_are_not_understood_leave_less_to_read() -> None:
    assert read_phrases("two balls with dots", "").claims == of(shape="ball")
    assert read_phrases("a red ball", "a blue ball").understood
    assert not read_phrases("a red ball", "a blue ball beside a giraffe").understood


@pytest.mark.parametrize(
    "text",
    [
        "a red ball " * 100_000,
        "no " * 100_000,
        "the any a " * 100_000,
        "x" * 1_000_000,
        "狗在草地上",
    ],
    ids=lambda text: text[:11],
)
def test_nothing_is_read_of_odd_texts(text) -> None:
    assert read_phrases(text, text).claims == ()
