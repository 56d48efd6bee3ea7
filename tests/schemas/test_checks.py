"""Why checks fail: what finds a description wrong, and what only finds nothing out."""

import pytest

from pairwright.schemas import checks
from pairwright.schemas.checks import AGAINST, speaks_against
from pairwright.schemas.rows import CheckRow


def check(why, *, passed=False):
    return CheckRow(
        key="k", source_key="d", subject="p", description="d", check="judged", passed=passed, score=0.0, why=why
    )


@pytest.mark.parametrize("why", sorted(AGAINST))
def test_what_is_found_wrong_speaks_against_a_description(why):
    assert speaks_against(check(why))


@pytest.mark.parametrize(
    "why",
    ["", checks.SEEN_IN_SAME, f"{checks.UNREADABLE_SWAPPED}cut off", checks.NO_RATING, checks.NOTHING_AFFIRMED],
)
def test_what_could_not_be_found_out_does_not(why):
    assert not speaks_against(check(why))


def test_a_check_that_passed_does_not():
    assert not speaks_against(check("", passed=True))
