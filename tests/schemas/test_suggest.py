"""Hints for unknown names."""

import pytest

from pairwright.schemas.suggest import suggest

TABLES = ("images", "pairs", "captions")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("imags", "did you mean images?"),
        ("pair", "did you mean pairs?"),
        ("walrus", "choose from images, pairs, captions"),
    ],
)
def test_similar_names_or_all(name: str, hint: str) -> None:
    assert suggest(name, TABLES) == hint
