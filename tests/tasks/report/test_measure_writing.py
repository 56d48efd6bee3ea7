"""What was written, by numbers counted by hand: repetition, verbs, refusals, axes, checks,
requests, sentences."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from pairwright.schemas.checks import AGAINST, NO_RATING, NOTHING_AFFIRMED, SEEN_IN_SAME
from pairwright.schemas.rows import Dropped, Turn
from pairwright.tasks.report import measure_writing
from pairwright.tasks.report.query_tables import CHECKS, Tables
from tests.tasks.report.handmade import Handmade, build_handmade, make_whole
from tests.tasks.report.handmade_served import CHAT, LANGUAGE, LINE_SERVED, asked, make_served


class Given(Tables):
    """One table in place of a build's."""

    def __init__(self, create, *rows):
        self.connection = duckdb.connect()
        self.connection.execute(create)
        self.connection.executemany(
            f"INSERT INTO {create.split()[2]} VALUES ({', '.join('?' * len(rows[0]))})", rows
        )

    def has(self, name):
        return True

    @contextmanager
    def database(self, **columns):
        yield self.connection


def repetition(*texts):
    found = measure_writing.measure_differences(
        Given("CREATE TABLE described (text VARCHAR, attempts INT)", *([t, 1] for t in texts)), []
    )
    return found.total, found.total - found.repeated


def axes(*lists):
    return measure_writing.count_axes(
        Given("CREATE TABLE comparisons (number INT, axes VARCHAR[])", *map(list, enumerate(lists)))
    )


def test_the_first_of_equal_sentences_is_unique():
    assert repetition("a b", "a b", "a b", "c", "d", "d") == (6, 3)
    assert repetition("a  b\n", " a b") == (2, 1)
    assert repetition("a b", "A b", "a b.", "a, b") == (4, 4)
    assert repetition("", None) == (2, 1)


@pytest.fixture(scope="module")
def whole():
    return make_whole(3, 3)


def differences_of(tmp_path, made, until="differences"):
    with build_handmade(tmp_path, made, until=until) as (build, counts):
        return measure_writing.measure_differences(Tables(build), counts)


def test_descriptions_of_a_dataset(tmp_path, whole):
    rows = whole.of("differences")
    assert len(rows) >= 5
    texts = ["One.", "One. ", "Two.", "Nothing differs.", "Nothing differs."]
    rows = [
        replace(row, text=text, attempts=1 + n % 2)
        for n, (row, text) in enumerate(zip(rows, texts, strict=False))
    ]
    pairs = [
        row.key for row in whole.of("pairs") if row.key not in {one.source_key for one in rows}
    ]
    refused = [
        Dropped(source_key=pairs[0], reason="cut off", detail="length"),
        Dropped(source_key=pairs[1], reason="too long (differences.max_words=120)"),
        Dropped(source_key=pairs[2], reason="no captions"),
    ]
    made = Handmade({**whole.tables, "differences": [*rows, *refused]})
    found = differences_of(tmp_path, made)
    assert (found.total, found.repeated) == (5, 2)
    # Refused: the first answers of rows 1 and 3, accepted when asked again, and of two pairs that
    # have none.
    assert (found.again, found.lost, found.asked) == (2, 2, 7)


def test_where_all_were_refused_it_says_so(tmp_path, whole):
    made = Handmade(dict(whole.tables))
    made.tables["differences"] = [
        Dropped(source_key=row.key, reason="empty half") for row in whole.of("pairs")
    ]
    found = differences_of(tmp_path, made)
    assert (found.total, found.lost) == (0, found.asked)


def test_axes_of_statements():
    found = axes(["counts, locations", "counts"], [""], [], ["attributes", "", "of the moon"])
    assert found == {"counts": 1, "locations": 1, "attributes": 1, measure_writing.UNLABELLED: 2}
    assert axes([], []) == {}


def test_comparisons_of_a_dataset(tmp_path):
    made = make_whole(3, 3)
    turns = tuple(
        Turn(role=role, text=text)
        for role, text in (("user", "q"), ("assistant", "a"), ("user", "which?"))
    )
    rows = [
        replace(
            row,
            commonalities=("Both show a table.",)
            if n
            else ("Both show a very old table.", "Both are warm."),
            differences=("One two three.", "Four."),
            axes=("object types", "counts, attributes") if n else ("object types", ""),
            conversation=(*turns, Turn(role="assistant", text="AB"[n % 2])) if n < 3 else turns[:2],
        )
        for n, row in enumerate(made.of("comparisons"))
    ]
    many = len(rows)
    with build_handmade(
        tmp_path, Handmade({**made.tables, "comparisons": rows}), until="comparisons"
    ) as (build, _):
        found = measure_writing.measure_summaries(Tables(build))
    assert found.rows == many
    assert found.common_words == pytest.approx((9 + 4 * (many - 1)) / many)
    assert found.difference_words == 4
    assert found.axes == {
        "object types": many,
        "attributes": many - 1,
        "counts": many - 1,
        "actions": 0,
        "locations": 0,
        "relative positions": 0,
        measure_writing.UNLABELLED: 1,
    }
    assert found.per_summary == pytest.approx((3 * (many - 1) + 1) / many)
    assert found.answers == {"A": 2, "B": 1}


@pytest.fixture(scope="module")
def made():
    return make_served(4, 3)


@pytest.fixture(scope="module")
def checks(made, tmp_path_factory):
    with build_handmade(
        tmp_path_factory.mktemp("checks"), made, until="judged", line=LINE_SERVED
    ) as (build, _):
        return {
            check.name: check
            for name in CHECKS
            for check in measure_writing.measure_checks(Tables(build), name)
        }


def test_passed_and_failed_with_reasons_and_scores(made, checks):
    assert list(checks) == ["swapped", "same", "grounded", "judged"]
    rows = [row for name in ("controlled", "grounded", "judged") for row in made.of(name)]
    for name, check in checks.items():
        own = [row for row in rows if row.check == name]
        failed = Counter(row.why for row in own if not row.passed)
        assert (check.rows, check.passed, check.why) == (
            len(own),
            len(own) - failed.total(),
            dict(failed),
        )
        assert check.against == sum(number for why, number in failed.items() if why in AGAINST)
    assert checks["same"].passed == checks["same"].rows
    assert any(row.why == NOTHING_AFFIRMED for row in made.of("grounded"))
    assert all(measure_writing.says_something(why) for why in (*AGAINST, SEEN_IN_SAME))
    assert not any(measure_writing.says_something(why) for why in ("", NO_RATING, NOTHING_AFFIRMED))


def measured(tmp_path, made, until="preferences"):
    with build_handmade(tmp_path, made, until=until, line=LINE_SERVED) as (build, _):
        return measure_writing.measure_served(Tables(build))


def test_requests_of_captions(tmp_path):
    made = make_whole(2, 2)
    rows = made.of("captions")
    second = "other"
    given = [
        (
            asked("describe", 1, latency=1.0),
            asked("split", 2, model=second, latency=9.0, tokens=(10, 5)),
        ),
        (asked("describe", 3, latency=2.0, finish="length"), asked("describe", 4, latency=3.0)),
        (asked("describe", 5, latency=4.0),),
        (),
    ]
    made.tables["captions"] = [
        replace(row, served=served) for row, served in zip(rows, given, strict=True)
    ]
    uses = measured(tmp_path, made, until="captions")
    assert [(use.stage, use.model) for use in uses] == [("captions", CHAT), ("captions", second)]
    chat, other = uses
    assert (chat.requests, chat.prompt_tokens, chat.completion_tokens) == (4, 4 * 1300, 4 * 60)
    assert chat.median == pytest.approx(2.5)
    assert chat.p95 == pytest.approx(np.quantile([1, 2, 3, 4], 0.95))
    assert chat.finish_reasons == {"stop": 3, "length": 1}
    assert chat.rows == 3
    assert chat.revisions == {"rev-1": 4}
    assert (other.requests, other.prompt_tokens, other.rows) == (1, 10, 1)
    assert list(other.revisions) == [""]


def test_a_request_counts_once(tmp_path):
    """The description that was taken holds its requests, too."""
    made = make_served(2, 3)
    uses = measured(tmp_path, made)
    requests = {
        one
        for name in LINE_SERVED
        for row in made.of(name[0])
        for one in getattr(row, "served", ())
    }
    assert sum(use.requests for use in uses) == len(requests)
    assert sum(use.completion_tokens for use in uses) == sum(
        one.completion_tokens for one in requests
    )
    assert {use.stage for use in uses}.isdisjoint({"differences", "grounded"})
    assert {use.model for use in uses if use.stage in ("comparisons", "questions")} == {LANGUAGE}


def test_many_requests_are_counted_across_parts_and_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("pairwright.tasks.report.query_tables.CHUNK_ROWS", 3)
    made = Handmade(make_whole(5, 4).tables)
    made.tables["captions"] = [
        replace(row, served=(asked(f"p{n % 3}", n, model=f"m{n % 2}", latency=n / 10),) * 2)
        for n, row in enumerate(made.of("captions"))
    ]
    uses = measured(tmp_path, made, until="captions")
    # Each request stands twice in its row and counts once; one model has the even numbers, one the
    # odd.
    assert sorted((use.model, use.requests, use.rows) for use in uses) == [
        ("m0", 10, 10),
        ("m1", 10, 10),
    ]
    assert next(use for use in uses if use.model == "m1").median == pytest.approx(1.0)
