"""Why checks fail: what finds a description wrong, and what only finds nothing out."""

import pytest

from pairwright.schemas import checks
from pairwright.schemas.checks import speaks_against


@pytest.mark.parametrize(
    ("why", "against"),
    [
        (checks.NOT_TURNED_ROUND, True),
        (checks.LOW_RATING, True),
        (f"{checks.LOW_RATING} (judging.min_rating=3)", True),
        (f"{checks.CHANGED} (regions.max_unchanged_area=0.004)", True),
        (checks.NOT_FOUND, False),
        (f"{checks.NOT_ALIGNED}too few features match", False),
        ("", False),
        (checks.SEEN_IN_SAME, False),
        (f"{checks.UNREADABLE_SWAPPED}cut off", False),
        (checks.NO_RATING, False),
    ],
)
def test_only_what_is_found_wrong_speaks_against_a_description(why, against):
    assert speaks_against(why) is against
