"""Checks of descriptions, counted by hand."""

from collections import Counter

import pytest

from pairwright.schemas.checks import AGAINST, NO_RATING, NOTHING_AFFIRMED, SEEN_IN_SAME
from pairwright.tasks.report.measure_checks import measure_checks, says_something
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole
from tests.tasks.report.handmade_served import LINE_SERVED, make_served


@pytest.fixture(scope="module")
def made():
    return make_served(4, 3)


@pytest.fixture(scope="module")
def checks(made, tmp_path_factory):
    with build_handmade(tmp_path_factory.mktemp("checks"), made, until="judged", line=LINE_SERVED) as (build, _):
        return {check.name: check for check in measure_checks(Tables(build))}


def test_passed_and_failed_with_reasons(made, checks):
    assert list(checks) == ["swapped", "same", "grounded", "judged"]
    rows = [row for name in ("controlled", "grounded", "judged") for row in made.of(name)]
    for name, check in checks.items():
        own = [row for row in rows if row.check == name]
        failed = Counter(row.why for row in own if not row.passed)
        assert (check.rows, check.passed, check.why) == (len(own), len(own) - failed.total(), dict(failed))
        assert check.against == sum(number for why, number in failed.items() if why in AGAINST)
        assert check.meaning
    assert checks["same"].share == 1


def test_scores_are_drawn_of_what_was_found_out(made, checks):
    grounded = checks["grounded"].scores
    counts = {one.name: int(one.count) for one in grounded.legend}
    rows = made.of("grounded")
    assert counts == {
        "passed": sum(row.passed for row in rows),
        "failed": sum(row.why in AGAINST for row in rows),
    }
    assert any(row.why == NOTHING_AFFIRMED for row in rows)
    assert checks["same"].scores is None, "all have one score"
    assert checks["judged"].scores.unit == "rating"


def test_what_says_something():
    assert all(says_something(why) for why in (*AGAINST, SEEN_IN_SAME))
    assert not any(says_something(why) for why in ("", NO_RATING, NOTHING_AFFIRMED))


def test_no_checks(tmp_path):
    with build_handmade(tmp_path, make_whole(2, 2)) as (build, _):
        assert measure_checks(Tables(build)) == ()
