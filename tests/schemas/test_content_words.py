"""Content words: singular and denied forms, and what says nothing."""

import pytest

from pairwright.schemas.content_words import content_words


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
