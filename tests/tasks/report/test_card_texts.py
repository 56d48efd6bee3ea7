"""Who wrote each text of a pair, from what, and what became of the others."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.schemas.rows import CaptionRow, DifferenceRow
from pairwright.tasks.report.card_texts import MOST_WORDS, Texts, byline, mark_words, split_sides
from pairwright.tasks.report.tables import Tables
from tests.fixtures.rows import row_of
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, JUDGE, LANGUAGE, LINE_SERVED, asked, make_served


@pytest.fixture(scope="module")
def made():
    return make_served(3, 3)


@pytest.fixture(scope="module")
def texts(made, tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("texts"), made, line=LINE_SERVED) as (build, _):
        return Texts(Tables(build), made.of("pairs"))


def pair(made, n):
    return made.of("pairs")[n].key


def test_a_byline_names_prompts_once_and_counts_attempts():
    served = (asked("a", 1), asked("a", 2), asked("difference_from_images", 3))
    line = byline(row_of(DifferenceRow, source="", served=served, attempts=1))
    assert (line.prompts, line.attempts) == (["a", "difference_from_images"], 2)
    assert line.tokens == 180
    assert line.seconds == pytest.approx(3.0)
    assert byline(row_of(DifferenceRow, source="", served=served[:1], attempts=3)).attempts == 3
    assert byline(row_of(CaptionRow, source="", model="scene-graph")) is None


def test_descriptions_say_who_wrote_them_and_why_they_failed(made, texts):
    key = pair(made, 2)
    row, checks = texts.differences[key], texts.checks(key)
    assert (row.model, byline(row).prompts) == (CHAT, ["difference_from_edit"])
    assert sorted(check.check for check in checks[row.text]) == ["grounded", "judged", "same", "swapped"]
    assert all(check.passed for check in checks[row.text])
    assert next(check.served[-1].model for check in checks[row.text] if check.check == "judged") == JUDGE
    assert byline(texts.differences[pair(made, 5)]).attempts == 2
    (candidate,) = texts.candidates(key)
    (check,) = [one for one in checks[candidate.text] if not one.passed]
    assert (check.check, check.why, check.score) == ("judged", "judge: low rating", 1.0)
    assert pair(made, 1) not in texts.differences
    (candidate,) = texts.candidates(pair(made, 1))
    checks = texts.checks(pair(made, 1))[candidate.text]
    assert [check.check for check in checks if not check.passed] == ["grounded"]
    assert texts.candidates(pair(made, 0)) == []
    assert byline(texts.comparisons[key]).prompts == ["compare_captions"]
    line = byline(texts.caption(made.of("images")[0]))
    assert (line.prompts, line.attempts) == (["describe_image", "split_sentences"], 1)


def test_rejected_texts_have_their_authors(made, texts):
    key = pair(made, 2)
    rows = {row.maker: row for row in texts.rejected[key]}
    assert rows["counterfactual"].served[-1].model == LANGUAGE
    assert byline(rows["edited"]) is None


def test_scene_graphs_name_no_model_and_have_no_checks(tmp_path):
    made = make_whole(2, 3)
    with build_handmade(tmp_path, made) as (build, _):
        texts = Texts(Tables(build), made.of("pairs"))
    key = made.of("differences")[0].subject
    assert (byline(texts.differences[key]), texts.checks(key)) == (None, {})
    assert texts.candidates(key) == []


def marked(text, other):
    return [segment.text for segment in mark_words(text, other) if segment.differs]


@pytest.mark.parametrize(
    ("text", "other", "found"),
    [
        ("the two small red balls roll", "the cube rolls", ["two small red balls roll"]),  # beside each other: one mark
        ("a very red ball", "a red ball", ["very"]),
        ("a red ball", "a very red ball", []),
        ("A ball, here", "a ball here", ["A", ","]),
        ("a  ball\nhere", "a ball here", []),
        ("", "a", []),
        ("a ball", "", []),
        ("word " * MOST_WORDS, "other", []),
    ],
)
def test_words_that_the_other_text_lacks_are_marked(text, other, found):
    assert marked(text, other) == found


def test_halves_about_one_image_each_are_compared_with_each_other():
    first, second = "the first image has a red ball", "the second image has no cube"
    swapped = "the first image has no cube, while the second image has a red ball."
    assert marked(f"{first}, while {second}.", swapped) == ["a red ball", "no cube"]


def test_halves_of_the_template_are_compared_also_where_they_name_the_other_image():
    both = ("has a ball", "shows a cube, unlike the first image")
    text, swapped = (
        f"The difference between the two images is that the first image {one}, while the second image {other}."
        for one, other in (both, both[::-1])
    )
    assert marked(swapped, text) == ["shows", "cube, unlike the first image", "has", "ball"]
    assert marked(text, swapped) == ["has", "ball", "shows", "cube, unlike the first image"]


words = st.text(alphabet="ab ,.\n<>&é'-", max_size=40)


@given(words, words)
def test_segments_joined_are_the_text(text, other):
    segments = mark_words(text, other)
    assert "".join(segment.text for segment in segments) == text
    assert all(segment.text for segment in segments)
    assert all(a.differs != b.differs for a, b in pairwise(segments))


@given(words)
def test_equal_texts_have_no_marks(text):
    assert marked(text, text) == []


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
