"""Likeness of halves: content words, singular and denied forms, and order."""

import pytest

from tasks.captioning.likeness import content_words, likeness


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a photo of two dogs and the dog's bones", ["two", "dog", "dog", "bone"]),
        ("There isn’t any glass on the bus", ["no", "glass", "bus"]),
        ("a scene without people, lacking colour", ["no", "people", "no", "colour"]),
        ("The image is a view of it", []),
        ("ein weißes Haus, 3 Bäume", ["ein", "weiße", "haus", "3", "bäume"]),
        ("", []),
    ],
)
def test_content_words(text, words):
    assert content_words(text) == words


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
