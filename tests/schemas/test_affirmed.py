"""What a half affirms: everything but what it says is not there."""

import pytest

from pairwright.schemas.affirmed import affirmed, denies


@pytest.mark.parametrize(
    "half",
    [
        "a red ball, a blue cube and a dog",
        "a man; behind him, two dogs",
        "a notice board with notes",
        "three knots in a rope",
    ],
)
def test_what_denies_nothing_is_kept_as_it_is(half):
    assert not denies(half)
    assert affirmed(half) == half


@pytest.mark.parametrize(
    ("half", "kept"),
    [
        ("no dog", ""),
        ("a scene without dogs", ""),
        ("a scene that lacks any red metal balls", ""),
        ("no red ball at all", ""),
        ("a lawn without a dog", "a lawn"),
        ("a red ball but no blue cube", "a red ball"),
        ("a red ball, and no blue cube", "a red ball"),
        ("a scene with a cat but without a dog", "a scene with a cat"),
        ("no dog, but a cat", "a cat"),
        ("no dog and with a cat", "with a cat"),
        ("the dog is missing", ""),
        ("a table, the cup on it isn't there", "a table"),
        ("a man who is no longer there, and a bench", "a bench"),
        ("a cup instead of a glass", "a cup"),
        ("six balls, with no sign of cubes", "six balls"),
        ("a street. No cars are parked.", "a street"),
        ("Neither a dog nor a cat", ""),
        ("a table with nothing on it", "a table"),
    ],
)
def test_what_is_denied_is_cut_out(half, kept):
    assert denies(half)
    assert affirmed(half) == kept


@pytest.mark.parametrize("half", ["", "it", "the scene", "the same picture of it"])
def test_what_says_nothing_affirms_nothing(half):
    assert affirmed(half) == ""
