"""Likeness and truth, as the makers of rejected texts share them."""

import pytest

from schemas.claims import Claim
from tasks.rejected.check_texts import Truth, likeness
from tests.fixtures.graphs import graph, thing


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
def test_likeness_is_a_cosine_of_words_and_word_pairs(first, second, cosine):
    assert likeness(first, second) == pytest.approx(cosine, abs=1e-9)


def test_truth_is_unknown_without_graphs_or_claims():
    graphs = (graph(thing()), graph())
    claims = (Claim(side=0, kind="count", count=1),)
    assert Truth(None).of(claims) is None
    assert Truth(graphs).of(()) is None
    assert Truth(graphs).of(claims) is True
    assert Truth(graphs).of((Claim(side=1, kind="count", count=1),)) is False
