"""The numbers of a dataset's texts in sentences, as its card has them."""

from pairwright.tasks.report.measure_writing import Writing, measure_writing, say_writing
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_served import LINE_SERVED, make_served


def said(tmp_path, made, **options):
    with build_handmade(tmp_path, made, **options) as (build, counts):
        return list(say_writing(measure_writing(Tables(build), counts)))


def test_sentences_of_served_writing(tmp_path):
    made = make_served(3, 3)
    lines = said(tmp_path, made, line=LINE_SERVED)
    texts = [row.text for row in made.of("described")]
    repeated = len(texts) - len(set(texts))
    assert lines[0] == (
        f"{repeated} of {len(texts)} descriptions of differences ({repeated / len(texts):.2%}) repeat another one word "
        "for word (paper 001, Table 14: 3.07%)."
    )
    again = sum(row.attempts > 1 for row in made.of("described"))
    assert lines[1].startswith(f"{again + 1} of {len(texts) + 1} first answers")
    assert lines[1].endswith("of these, 1 had no good one after them.")
    assert lines[2].startswith("A summary of commonalities and differences has ")
    assert [line.split('"')[1] for line in lines if line.startswith("The check")] == [
        "swapped", "same", "grounded", "judged",
    ]  # fmt: skip
    assert sum("answered" in line for line in lines) == 3


def test_scenes_have_no_checks_and_no_served_models(tmp_path):
    lines = said(tmp_path, make_whole(2, 3))
    assert len(lines) == 3
    assert not any("check" in line or "answered" in line for line in lines)


def test_a_build_that_stopped_at_mining_says_nothing(tmp_path):
    assert said(tmp_path, make_whole(2, 2), until="pairs") == []


def test_nothing_measured_says_nothing():
    assert not list(say_writing(Writing(differences=None, summaries=None, checks=(), uses=(), written=())))
