"""What served models were asked and what was written by whom, by numbers counted by hand, and in sentences."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.rows import DifferenceRow
from pairwright.tasks.report.measure_writing import measure_served, measure_writing, say_writing
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, LANGUAGE, LINE_SERVED, asked, make_served


def measured(tmp_path, made, until="preferences"):
    with build_handmade(tmp_path, made, until=until, line=LINE_SERVED) as (build, _):
        return measure_served(Tables(build))


def test_requests_of_captions(tmp_path):
    made = make_whole(2, 2)
    rows = made.of("captions")
    second = "other"
    given = [
        (asked("describe", 1, latency=1.0), asked("split", 2, model=second, latency=9.0, tokens=(10, 5))),
        (asked("describe", 3, latency=2.0, finish="length"), asked("describe", 4, latency=3.0)),
        (asked("describe", 5, latency=4.0),),
        (),
    ]
    made.tables["captions"] = [replace(row, served=served) for row, served in zip(rows, given, strict=True)]
    uses = measured(tmp_path, made, until="captions")
    assert [(use.stage, use.model) for use in uses] == [("captions", CHAT), ("captions", second)]
    chat, other = uses
    assert (chat.requests, chat.prompt_tokens, chat.completion_tokens) == (4, 4 * 1300, 4 * 60)
    assert chat.median == pytest.approx(2.5)
    assert chat.p95 == pytest.approx(np.quantile([1, 2, 3, 4], 0.95))
    assert chat.finish_reasons == {"stop": 3, "length": 1}
    assert (chat.rows, chat.again) == (3, 1)
    assert chat.revisions == ["rev-1"]
    assert (other.requests, other.prompt_tokens, other.rows, other.again) == (1, 10, 1, 0)
    assert other.revisions == []


def test_attempts_are_the_row_s_where_it_says_them(tmp_path):
    made = make_served(2, 3)
    made.tables["described"] = [
        replace(row, attempts=3 if n < 2 else 1) if isinstance(row, DifferenceRow) else row
        for n, row in enumerate(made.tables["described"], start=-1)
    ]
    (described,) = [use for use in measured(tmp_path, made, until="described") if use.stage == "described"]
    assert (described.rows, described.again) == (len(made.of("described")), 2)


def test_samples_are_no_attempts(tmp_path):
    made = make_served(2, 3)
    made.tables["sampled"] = [
        replace(row, served=(asked("p", 2 * n), asked("p", 2 * n + 1))) for n, row in enumerate(made.of("sampled"))
    ]
    (sampled,) = [use for use in measured(tmp_path, made) if use.stage == "sampled"]
    assert (sampled.requests, sampled.again) == (2 * sampled.rows, 0)


def test_a_request_counts_once(tmp_path):
    """The description that was taken and the one that became a rejected text hold their requests, too."""
    made = make_served(2, 3)
    uses = measured(tmp_path, made)
    requests = {one for name in LINE_SERVED for row in made.of(name[0]) for one in getattr(row, "served", ())}
    assert sum(use.requests for use in uses) == len(requests)
    assert sum(use.completion_tokens for use in uses) == sum(one.completion_tokens for one in requests)
    assert {use.stage for use in uses}.isdisjoint({"differences", "refuted", "grounded"})
    assert {use.model for use in uses if use.stage in ("comparisons", "questions")} == {LANGUAGE}


def test_scenes_ask_nobody(tmp_path):
    with build_handmade(tmp_path, make_whole(2, 2)) as (build, _):
        tables = Tables(build)
        assert measure_served(tables) == []
        texts = ["captions", "described", "differences", "comparisons"]
        assert tables.served() == [*texts, "swapped", "edited", "retrieved"]


def test_many_requests_are_counted_across_parts_and_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("pairwright.tasks.report.tables.CHUNK_ROWS", 3)
    made = Handmade(make_whole(5, 4).tables)
    made.tables["captions"] = [
        replace(row, served=(asked(f"p{n % 3}", n, model=f"m{n % 2}", latency=n / 10),) * 2)
        for n, row in enumerate(made.of("captions"))
    ]
    uses = measured(tmp_path, made, until="captions")
    # Each request stands twice in its row and counts once; one model has the even numbers, one the odd.
    assert sorted((use.model, use.requests, use.rows) for use in uses) == [("m0", 10, 10), ("m1", 10, 10)]
    assert next(use for use in uses if use.model == "m1").median == pytest.approx(1.0)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("served"), make_served(3, 3), line=LINE_SERVED) as (build, counts):
        return measure_writing(Tables(build), counts)


def test_every_stage_that_writes_is_listed_with_its_writer(served):
    by = {one.counts.stage: one.by for one in served.written}
    assert list(by) == [
        "captions", "described", "controlled", "grounded", "judged", "differences", "comparisons", "questions",
        "swapped", "edited", "retrieved", "sampled", "refuted", "counterfactual",
    ]  # fmt: skip
    assert by["captions"] == by["described"] == by["differences"] == by["sampled"] == CHAT
    assert by["comparisons"] == by["questions"] == by["counterfactual"] == LANGUAGE
    assert by["controlled"] == CHAT
    assert by["edited"] == "a rule"
    assert by["grounded"] == ""


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


def test_a_build_that_stopped_at_mining_says_nothing(tmp_path):
    assert said(tmp_path, make_whole(2, 2), until="pairs") == []
