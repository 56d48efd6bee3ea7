"""Words that differ between two texts, and statements about one image each."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.report.card_texts import MOST_WORDS, mark_words, split_sides
from tests.tasks.report.handmade_served import sentence

BALL, CUBE = "has a ball", "shows a cube, unlike the first image"
ONE = "the first image has a red ball, while the second image has no cube."


def marked(text, other):
    return [segment.text for segment in mark_words(text, other) if segment.differs]


@pytest.mark.parametrize(
    ("text", "other", "marks"),
    [
        ("the two small red balls roll", "the cube rolls", ["two small red balls roll"]),
        ("a very red ball", "a red ball", ["very"]),
        ("a red ball", "a very red ball", []),
        ("A ball, here", "a ball here", ["A", ","]),
        ("a  ball\nhere", "a ball here", []),
        ("", "a", []),
        ("a ball", "", []),
        ("word " * MOST_WORDS, "other", []),
        # Halves about one image each are compared with each other, also where they name the other.
        (ONE, "the first image has no cube, while the second image has a red ball.",
         ["a red ball", "no cube"]),
        (sentence(CUBE, BALL), sentence(BALL, CUBE),
         ["shows", "cube, unlike the first image", "has", "ball"]),
        (sentence(BALL, CUBE), sentence(CUBE, BALL),
         ["has", "ball", "shows", "cube, unlike the first image"]),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_words_that_the_other_text_lacks_are_marked(text, other, marks):
    assert marked(text, other) == marks


WORDS = st.text(alphabet="ab ,.\n<>&é'-", max_size=40)


@given(WORDS, WORDS)
def test_segments_joined_are_the_text(text, other):
    segments = mark_words(text, other)
    assert "".join(segment.text for segment in segments) == text
    assert all(segment.text for segment in segments)
    assert all(before.differs != after.differs for before, after in pairwise(segments))


@pytest.mark.parametrize(
    ("first", "between", "second"),
    [
        ("Image 1 has a red box", ", whereas ", "Image 2 has a blue one."),
        ("In Image 1, the mug stands left", ". ", "In Image 2, it is gone."),
        ("The first image shows a cat", " while ", "the second image shows a dog."),
        ("Image 1 shows 'A'", "; ", "in Image 2, one finds 'B' instead."),
    ],
)
def test_a_statement_about_one_image_each_is_divided(first, between, second):
    assert split_sides(first + between + second) == (first, second)


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "A purple duck can be seen in Image 1 but not in Image 2.",
        "Image 2 has a ball, whereas Image 1 has none.",
        "Image 1 and Image 2 differ, while Image 2 is darker.",
        "The light is warmer, and the shadows are longer.",
    ],
)
def test_others_are_left_whole(statement):
    assert split_sides(statement) is None
