"""Conversations of two turns: which captions are asked about, and that each answer comes as often as the other."""

import pytest

from pairwright.prompts import load
from pairwright.tasks.captioning.compare_pairs import nearly_match, retrieval_turns, sides_of_own_words
from tests.fixtures.graphs import pair_row


def test_the_second_turn_asks_by_the_pairs_key():
    captions = ("A cat.", "A dog.")
    found = [retrieval_turns(pair_row(f"a{n}", f"b{n}"), captions, (0, 1), seed=0) for n in range(400)]
    answers = [answer.text for _, answer in found]
    assert 160 < answers.count("A") < 240
    for question, answer in found:
        assert question.text == load("retrieve_image").render(caption=captions["AB".index(answer.text)])
    assert answers == [
        retrieval_turns(pair_row(f"a{n}", f"b{n}"), captions, (0, 1), seed=0)[1].text for n in range(400)
    ]
    other = [retrieval_turns(pair_row(f"a{n}", f"b{n}"), captions, (0, 1), seed=1)[1].text for n in range(400)]
    assert 120 < sum(one != two for one, two in zip(answers, other, strict=True)) < 280


@pytest.mark.parametrize(
    ("captions", "most", "match"),
    [
        (("A red ball.", "a red  ball"), 1.0, True),
        (("A red ball.", "A ball red."), 1.0, False),
        (("A red ball on a table.", "A blue ball on a table."), 0.9, False),
        (("A red ball on a table.", "A blue ball on a table."), 0.7, True),
        (("", "A ball."), 1.0, True),
        (("…", "A ball."), 1.0, True),
    ],
)
def test_captions_that_nearly_match(captions, most, match):
    assert nearly_match(captions, most) is match
    assert nearly_match(captions[::-1], most) is match


@pytest.mark.parametrize(
    ("captions", "sides"),
    [
        (("A cat sits on a mat.", "A dog sits on a mat."), [0, 1]),
        (("A cat sits on a mat.", "A cat sits on a red mat."), [1]),
        (("Two cats.", "A cat."), [0]),
        (("A cat is on the mat.", "Cats are on mats."), []),
        (("A mat without a cat.", "A mat and a cat."), [0]),
        (("The picture shows a cat.", "A cat."), [0]),
    ],
)
def test_a_caption_is_asked_about_if_it_has_words_of_its_own(captions, sides):
    assert sides_of_own_words(captions) == sides
