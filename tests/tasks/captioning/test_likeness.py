"""Likeness of halves: content words, and their order."""

import pytest

from pairwright.tasks.captioning.likeness import likeness


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("a red ball", "the red balls", 1.0),  # red, ball, red-ball on both sides
        ("a red ball", "a blue ball", 2 / 6),  # of red, ball, red-ball and blue, ball, blue-ball only ball
        ("no dog", "without dogs", 1.0),
        ("a dog", "no dog", 2 / 4),  # dog of dog; no, dog, no-dog
        ("a cat left of a dog", "a dog left of a cat", 6 / 10),  # three words of three; no pair of two
        ("a dog a dog", "a dog", 2 / 4),  # dog once of dog, dog, dog-dog and dog
        ("a cat", "a dog", 0.0),
        ("it", "there", 0.0),
        ("", "", 0.0),
    ],
)
def test_likeness(one, other, wanted):
    assert likeness(one, other) == pytest.approx(wanted)
    assert likeness(other, one) == pytest.approx(wanted)
