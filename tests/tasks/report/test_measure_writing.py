"""What was written, by numbers counted by hand: repetition, verbs, refusals, axes, checks,
requests, sentences."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.checks import (
    AGAINST,
    CHECK_TABLES,
    NO_RATING,
    NOTHING_AFFIRMED,
    SEEN_IN_SAME,
)
from pairwright.schemas.rows import Dropped, Turn
from pairwright.tasks.report import measure_writing
from pairwright.tasks.report.query_tables import Tables
from tests.tasks.report.handmade import LINE, Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, LANGUAGE, LINE_SERVED, make_served, request


def measure(measuring, root, made, until, line=LINE, **tables):
    """Measure a dataset of which some tables are others."""
    changed = Handmade({**made.tables, **tables})
    with build_handmade(root, changed, until=until, line=line) as (build, counts):
        return measuring(Tables(build), counts)


def test_descriptions_of_a_dataset(tmp_path, small) -> None:
    texts = ["A  b.\n", " A b. ", "a b.", "A b", "A b"]
    rows = [
        replace(row, text=text, attempts=1 + n % 2)
        for n, (row, text) in enumerate(zip(small.of("differences"), texts, strict=False))
    ]
    assert len(rows) == 5
    described = {row.source_key for row in rows}
    pairs = [row.key for row in small.of("pairs") if row.key not in described]
    refused = [
        Dropped(source_key=pairs[0], reason="cut off", detail="length"),
        Dropped(source_key=pairs[1], reason="too long (differences.max_words=120)"),
        Dropped(source_key=pairs[2], reason="no captions"),
    ]
    tables = {"differences": [*rows, *refused]}
    counts = measure(measure_writing.measure_differences, tmp_path, small, "differences", **tables)
    assert (counts.total, counts.repeated) == (5, 2)
    # Refused: the first answers of rows 1 and 3, accepted when asked again, and of two pairs that
    # have none.
    assert (counts.again, counts.lost, counts.asked) == (2, 2, 7)


def test_descriptions_of_which_all_were_refused(tmp_path, small) -> None:
    refused = [Dropped(source_key=row.key, reason="empty half") for row in small.of("pairs")]
    counts = measure(
        measure_writing.measure_differences, tmp_path, small, "differences", differences=refused
    )
    assert (counts.total, counts.lost) == (0, counts.asked)


def test_comparisons_of_a_dataset(tmp_path, small) -> None:
    """The first has two commonalities, nine words, and a difference without an axis; all others
    have four words and three axes of two differences. The first three have an answer."""
    user, assistant = Turn(role="user", text="q"), Turn(role="assistant", text="a")
    rows = [
        replace(
            row,
            commonalities=("Both show a table.",),
            differences=("One two three.", "Four."),
            axes=("object types", "counts, attributes, of the moon"),
            conversation=(user, assistant),
        )
        for row in small.of("comparisons")
    ]
    both = ("Both show a very old table.", "Both are warm.")
    rows[0] = replace(rows[0], commonalities=both, axes=("object types", "object types", ""))
    for number, letter in enumerate("ABA"):
        answer = Turn(role="assistant", text=letter)
        rows[number] = replace(rows[number], conversation=(user, assistant, user, answer))
    measured = measure(
        lambda tables, _: measure_writing.measure_summaries(tables),
        *(tmp_path, small, "comparisons"),
        comparisons=rows,
    )
    others = len(rows) - 1
    assert measured.rows == others + 1
    assert measured.common_words == pytest.approx((9 + 4 * others) / (others + 1))
    assert measured.difference_words == 4
    assert {axis: count for axis, count in measured.axes.items() if count} == {
        "object types": others + 1,
        "attributes": others,
        "counts": others,
        measure_writing.UNLABELLED: 1,
    }
    assert {"actions", "locations", "relative positions"} <= measured.axes.keys()
    assert measured.per_summary == pytest.approx((3 * others + 1) / (others + 1))
    assert measured.answers == {"A": 2, "B": 1}


def test_checks_that_passed_and_failed_with_reasons_and_scores(tmp_path) -> None:
    made = make_served(4, 3)
    checks = measure(
        lambda tables, _: [
            check for name in CHECK_TABLES for check in measure_writing.measure_checks(tables, name)
        ],
        *(tmp_path, made, "judged", LINE_SERVED),
    )
    assert [check.name for check in checks] == ["swapped", "same", "grounded", "judged"]
    rows = [row for name in ("controlled", "grounded", "judged") for row in made.of(name)]
    for check in checks:
        own = [row for row in rows if row.check == check.name]
        failed = Counter(row.why for row in own if not row.passed)
        assert check.why == dict(failed)
        assert (check.rows, check.passed) == (len(own), len(own) - failed.total())
        assert check.against == sum(failed[why] for why in AGAINST)
    assert checks[1].passed == checks[1].rows
    assert any(row.why == NOTHING_AFFIRMED for row in made.of("grounded"))


def test_reasons_that_say_something_of_a_text() -> None:
    assert all(measure_writing.says_something(why) for why in (*AGAINST, SEEN_IN_SAME))
    assert not any(measure_writing.says_something(why) for why in ("", NO_RATING, NOTHING_AFFIRMED))


def measure_requests(root, made, until="preferences", **tables):
    def measuring(tables, counts):
        return measure_writing.measure_served(tables)

    return measure(measuring, root, made, until, LINE_SERVED, **tables)


def test_requests_of_captions(tmp_path) -> None:
    made = make_whole(2, 2)
    split = request("split", 2, model="other", latency=9.0, tokens=(10, 5))
    cut = request("describe", 3, latency=2.0, finish="length")
    requests = [
        (request("describe", 1, latency=1.0), split),
        (cut, request("describe", 4, latency=3.0)),
        (request("describe", 5, latency=4.0),),
        (),
    ]
    pairs = zip(made.of("captions"), requests, strict=True)
    captions = [replace(row, served=served) for row, served in pairs]
    chat, other = measure_requests(tmp_path, made, "captions", captions=captions)
    assert (chat.stage, chat.model) == ("captions", CHAT)
    assert (chat.requests, chat.prompt_tokens, chat.completion_tokens) == (4, 4 * 1300, 4 * 60)
    assert chat.median == pytest.approx(2.5)
    assert chat.p95 == pytest.approx(np.quantile([1, 2, 3, 4], 0.95))
    assert chat.finish_reasons == {"stop": 3, "length": 1}
    assert (chat.rows, chat.revisions) == (3, {"rev-1": 4})
    assert (other.stage, other.model) == ("captions", "other")
    assert (other.requests, other.prompt_tokens, other.rows) == (1, 10, 1)
    assert list(other.revisions) == [""]


def test_what_was_taken_off_and_thoughts_are_counted(tmp_path) -> None:
    made = make_whole(2, 2)
    thinking = replace(request("describe", 1), removed=("thoughts", "fence"), thought_tokens=40)
    fenced = replace(request("describe", 2), removed=("fence",), thought_tokens=2)
    requests = [(thinking, fenced), (request("describe", 3),), (), ()]
    pairs = zip(made.of("captions"), requests, strict=True)
    captions = [replace(row, served=served) for row, served in pairs]
    [use] = measure_requests(tmp_path, made, "captions", captions=captions)
    assert use.removed == {"fence": 2, "thoughts": 1}
    assert use.thought_tokens == 42
    writing = measure_writing.Writing(None, None, (), (use, use))
    _, kinds, thoughts = measure_writing.say_writing(writing)
    assert kinds == "Taken off its answers: fence (4), thoughts (2)."
    assert thoughts.startswith("84 of its tokens are thoughts")


def test_a_request_counts_once(tmp_path) -> None:
    """The description that was taken holds its requests, too."""
    made = make_served(2, 3)
    uses = measure_requests(tmp_path, made)
    rows = [row for name, *_ in LINE_SERVED for row in made.of(name) if hasattr(row, "served")]
    requests = {served for row in rows for served in row.served}
    assert sum(use.requests for use in uses) == len(requests)
    tokens = sum(served.completion_tokens for served in requests)
    assert sum(use.completion_tokens for use in uses) == tokens
    assert {use.stage for use in uses}.isdisjoint({"differences", "grounded"})
    assert {use.model for use in uses if use.stage in ("comparisons", "questions")} == {LANGUAGE}


def test_many_requests_are_counted_across_parts_and_chunks(tmp_path, monkeypatch) -> None:
    """Each request stands twice in its row and counts once; one model has the even numbers, one the
    odd."""
    monkeypatch.setattr("pairwright.tasks.report.query_tables.CHUNK_ROWS", 3)
    made = make_whole(5, 4)
    captions = []
    for n, row in enumerate(made.of("captions")):
        served = request(f"p{n % 3}", n, model=f"m{n % 2}", latency=n / 10)
        captions.append(replace(row, served=(served, served)))
    even, odd = sorted(
        measure_requests(tmp_path, made, "captions", captions=captions), key=lambda use: use.model
    )
    assert (even.model, even.requests, even.rows) == ("m0", 10, 10)
    assert (odd.model, odd.requests, odd.rows) == ("m1", 10, 10)
    assert odd.median == pytest.approx(1.0)
