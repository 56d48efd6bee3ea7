from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.report.mark_words import MOST_WORDS, Segment, mark_words


def marked(text, other):
    return [segment.text for segment in mark_words(text, other) if segment.differs]


def test_marks_words_that_the_other_text_lacks():
    assert mark_words("A red ball.", "A blue ball.") == (
        Segment("A ", differs=False),
        Segment("red", differs=True),
        Segment(" ball.", differs=False),
    )


def test_words_beside_each_other_are_one_mark():
    assert marked("the two small red balls roll", "the cube rolls") == ["two small red balls roll"]


def test_an_added_word_is_marked_on_its_own_side_only():
    assert marked("a very red ball", "a red ball") == ["very"]
    assert marked("a red ball", "a very red ball") == []


def test_case_and_punctuation_count_but_space_does_not():
    assert marked("A ball, here", "a ball here") == ["A", ","]
    assert marked("a  ball\nhere", "a ball here") == []


def test_nothing_to_compare_marks_nothing():
    assert mark_words("", "a") == ()
    assert mark_words("a ball", "") == (Segment("a ball", differs=False),)
    assert mark_words("word " * MOST_WORDS, "other")[0].differs is False


texts = st.text(alphabet="ab ,.\n<>&é'-", max_size=40)


@given(texts, texts)
def test_segments_joined_are_the_text(text, other):
    segments = mark_words(text, other)
    assert "".join(segment.text for segment in segments) == text
    assert all(segment.text for segment in segments)
    assert all(a.differs != b.differs for a, b in pairwise(segments))


@given(texts)
def test_equal_texts_have_no_marks(text):
    assert marked(text, text) == []
