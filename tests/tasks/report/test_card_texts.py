"""Who wrote each text of a pair, from what, and what became of the others."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.report.card_texts import (
    MOST_WORDS,
    Segment,
    author_of,
    byline,
    find_texts,
    mark_words,
    split_sides,
    view_candidates,
    view_caption,
    view_comparison,
    view_difference,
    view_questions,
    view_unused,
)
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, JUDGE, LANGUAGE, LINE_SERVED, asked, make_served


@pytest.fixture(scope="module")
def made():
    return make_served(3, 3)


@pytest.fixture(scope="module")
def texts(made, tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("texts"), made, line=LINE_SERVED) as (build, _):
        return find_texts(Tables(build), made.of("pairs"))


def difference(key, texts):
    row = texts.differences.get(key)
    return view_difference(row, texts, chosen=row) if row else None


def pair(made, n):
    return made.of("pairs")[n].key


def test_a_byline_names_prompts_once_and_counts_attempts():
    line = byline("m", (asked("a", 1), asked("a", 2), asked("b", 3)), told="the captions")
    assert (line.model, line.prompts, line.told, line.attempts) == ("m", ["a", "b"], "the captions", 2)
    assert line.tokens == 180
    assert line.seconds == pytest.approx(3.0)
    assert byline("m", (), attempts=3).attempts == 3
    assert byline("scene-graph", ()).prompts == []


def test_the_description_that_was_taken(made, texts):
    view = difference(pair(made, 2), texts)
    assert view.by.model == CHAT
    assert view.by.prompts == ["difference_from_edit"]
    assert view.by.told == "the images, their captions and the edit instruction"
    assert sorted(check.check for check in view.checks) == ["grounded", "judged", "same", "swapped"]
    assert view.failed == []
    assert next(check.model for check in view.checks if check.check == "judged") == JUDGE
    assert difference(pair(made, 5), texts).by.attempts == 2


def test_a_description_that_failed_says_why(made, texts):
    (view,) = view_candidates(pair(made, 2), texts)
    (check,) = view.failed
    assert (check.check, check.why, check.score) == ("judged", "judge: low rating", 1.0)
    assert any(segment.differs for segment in view.segments)


def test_where_nothing_was_found_out_there_is_no_score(made, texts):
    (view,) = view_candidates(pair(made, 3), texts)
    (check,) = view.failed
    assert (check.check, check.why, check.score) == ("grounded", "grounding: no half says what is there", None)


def test_where_no_description_passed_the_candidates_are_there(made, texts):
    assert difference(pair(made, 1), texts) is None
    (view,) = view_candidates(pair(made, 1), texts)
    assert [check.check for check in view.failed] == ["grounded"]
    assert not any(segment.differs for segment in view.segments), "there is nothing to compare it with"
    assert view_candidates(pair(made, 0), texts) == []


def test_comparison_questions_and_captions(made, texts):
    comparison = view_comparison(pair(made, 2), texts)
    assert (comparison.by.model, comparison.by.told) == (LANGUAGE, "the captions")
    assert [axes for axes, _, _ in comparison.differences] == [
        "attributes",
        "counts",
        "locations, relative positions",
        "",
    ]
    (question,) = view_questions(pair(made, 2), texts)
    assert (question.row.about, question.row.round + 1, question.row.rounds) == ("second", 3, 4)
    caption = view_caption(made.of("images")[0], texts)
    assert caption.by.prompts == ["describe_image", "split_sentences"]
    assert caption.by.attempts == 1
    assert len(caption.sentences) == 2


def test_rejected_texts_have_their_authors(made, texts):
    rows = {row.maker: row for name in ("sampled", "refuted", "counterfactual", "edited") for row in made.of(name)
            if row.subject == pair(made, 2)}  # fmt: skip
    assert author_of(pair(made, 2), texts, text=rows["counterfactual"].text).model == LANGUAGE
    assert author_of(pair(made, 2), texts, text=rows["edited"].text) is None
    assert not author_of(pair(made, 2), texts, text=rows["counterfactual"].text).several
    assert view_unused(pair(made, 2), texts)[0].by.several, "samples are asked for on purpose"
    assert [(view.maker, view.by.model) for view in view_unused(pair(made, 2), texts)] == [("sampled", CHAT)]


def test_scene_graphs_name_no_model_and_have_no_checks(tmp_path):
    made = make_whole(2, 3)
    with build_handmade(tmp_path, made) as (build, _):
        texts = find_texts(Tables(build), made.of("pairs"))
    key = made.of("differences")[0].subject
    view = difference(key, texts)
    assert (view.by.model, view.by.prompts, view.by.told, view.checks) == ("by hand", [], "", [])
    assert view_candidates(key, texts) == view_unused(key, texts) == view_questions(key, texts) == []


def marked(text, other):
    return [segment.text for segment in mark_words(text, other) if segment.differs]


def test_marks_words_that_the_other_text_lacks():
    assert mark_words("A red ball.", "A blue ball.") == [
        Segment("A ", differs=False),
        Segment("red", differs=True),
        Segment(" ball.", differs=False),
    ]


def test_words_beside_each_other_are_one_mark():
    assert marked("the two small red balls roll", "the cube rolls") == ["two small red balls roll"]


def test_an_added_word_is_marked_on_its_own_side_only():
    assert marked("a very red ball", "a red ball") == ["very"]
    assert marked("a red ball", "a very red ball") == []


def test_case_and_punctuation_count_but_space_does_not():
    assert marked("A ball, here", "a ball here") == ["A", ","]
    assert marked("a  ball\nhere", "a ball here") == []


def test_nothing_to_compare_marks_nothing():
    assert mark_words("", "a") == []
    assert mark_words("a ball", "") == [Segment("a ball", differs=False)]
    assert mark_words("word " * MOST_WORDS, "other")[0].differs is False


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
