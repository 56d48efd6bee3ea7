"""Rates and their ranges, by numbers worked out by hand."""

import math

import pytest

from pairwright.tasks.store.estimate import NOTHING, Estimate, add, exactly, ratio, share_of


def test_a_rate_is_the_ratio_of_the_sums_and_its_range_the_spread_of_the_samples() -> None:
    # 3 + 5 of 2 + 2: 2 per unit. Residuals 3 - 4 and 5 - 4: squares 2, times 2 / 1, root 2, over 8: 0.25 x 1.96.
    found = ratio([3, 5], [2, 2])
    assert found.value == 2
    assert found.low == pytest.approx(2 * math.exp(-0.49))
    assert found.high == pytest.approx(2 * math.exp(0.49))


def test_samples_that_agree_leave_no_doubt() -> None:
    assert ratio([2, 4, 6], [1, 2, 3]) == exactly(2)


def test_of_what_was_never_seen_there_are_at_most_three_in_n() -> None:
    assert ratio([0, 0], [20, 10]) == Estimate(0, 0, 0.1)


def test_one_sample_says_nothing_of_the_spread() -> None:
    found = ratio([4], [2])
    assert (found.value, found.low, found.high) == (2, 0, math.inf)
    assert found.as_json() == {"value": 2, "low": 0, "high": None}


def test_there_is_no_rate_of_nothing() -> None:
    with pytest.raises(ValueError, match="rate"):
        ratio([], [])


def test_errors_of_factors_add_in_squares() -> None:
    wide = Estimate(10, 10 * math.exp(-0.3), 10 * math.exp(0.3))
    wider = Estimate(2, 2 * math.exp(-0.4), 2 * math.exp(0.4))
    both = wide * wider  # the root of 0.09 + 0.16 is 0.5
    assert (both.value, both.low, both.high) == pytest.approx((20, 20 * math.exp(-0.5), 20 * math.exp(0.5)))
    assert wide * exactly(3) == Estimate(
        pytest.approx(30), pytest.approx(30 * math.exp(-0.3)), pytest.approx(wide.high * 3)
    )


def test_nothing_stays_nothing_but_for_what_may_be() -> None:
    assert NOTHING * Estimate(5, 0, math.inf) == NOTHING
    assert Estimate(0, 0, 0.1) * Estimate(50, 40, 60) == Estimate(0, 0, 6)


def test_what_is_added_rises_and_falls_together() -> None:
    assert add([Estimate(1, 0.5, 2), Estimate(10, 9, 12)]) == Estimate(11, 9.5, 14)
    assert Estimate(1, 0.5, 2).times(4) == Estimate(4, 2, 8)


def test_json_has_four_digits_or_whole_numbers() -> None:
    assert Estimate(0.123456, 12.3456, 123456.7).as_json() == {"value": 0.1235, "low": 12.35, "high": 123457}


def test_a_share_has_the_range_of_wilson() -> None:
    # By hand for 8 of 10: (8 + 3.8416/2 +- sqrt(3.8416 (8 * 2/10 + 3.8416/4))) / (10 + 3.8416).
    share = share_of(8, 10)
    assert (share.value, round(share.low, 4), round(share.high, 4)) == (0.8, 0.4902, 0.9433)
    assert share_of(0, 10).low == 0.0
    assert share_of(10, 10).high == 1.0
