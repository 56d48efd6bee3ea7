"""The population stability index by hand, bins of tenths, and histograms of real tables."""

import math
from collections import Counter
from pathlib import Path

import pytest

from pairwright.tasks.store.drift import count_lengths, count_similarities, cut_bins, match_counts, measure_drift
from tests.tasks.store.toy import build_toy, open_toy


def test_the_same_shares_are_no_drift() -> None:
    assert measure_drift([3, 3], [3, 3]) == 0
    assert measure_drift([50, 50], [500, 500]) == pytest.approx(0, abs=1e-12)


def test_drift_is_the_index_with_half_a_row_in_each_bin() -> None:
    # (3.5/5, 1.5/5) became (1.5/5, 3.5/5): (0.3 - 0.7) ln(3/7) + (0.7 - 0.3) ln(7/3) = 0.8 ln(7/3)
    assert measure_drift([3, 1], [1, 3]) == pytest.approx(0.8 * math.log(7 / 3))
    # (9.5/10, 0.5/10) became (0.5/10, 9.5/10), the empty bins included: 1.8 ln 19
    assert measure_drift([9, 0], [0, 9]) == pytest.approx(1.8 * math.log(19))


def test_bins_hold_a_tenth_of_the_earlier_rows() -> None:
    before = dict.fromkeys(range(20), 1)  # two values to a bin
    assert cut_bins(before, {0: 5, 1: 5, 19: 3}) == ([0, *[2] * 10, 0], [0, 10, *[0] * 8, 3, 0])


def test_what_lies_outside_all_earlier_values_is_in_bins_of_its_own() -> None:
    before = dict.fromkeys(range(10), 1)
    assert cut_bins(before, {-7: 1, 0: 1, 9: 1, 10: 1, 1000: 1}) == ([0, *[1] * 10, 0], [1, 1, *[0] * 8, 1, 2])
    assert cut_bins({5: 3}, {7: 3}) == ([0, 3, 0], [0, 0, 3])


def test_values_that_tie_stay_in_one_bin() -> None:
    assert cut_bins({5: 90, 6: 10}, {5: 10, 6: 90}) == ([0, 90, 10, 0], [0, 10, 90, 0])


def test_names_that_only_one_side_has_count_as_none_on_the_other() -> None:
    assert match_counts({"": 5, "blurred": 1}, {"": 4, "late": 2}) == ([5, 1, 0], [4, 0, 2])


def test_histograms_are_of_the_live_rows(tmp_path: Path) -> None:
    build_toy(tmp_path, ["a", "bb", "cc", "gone"])
    words = ["a", "bb", "cc"]
    build_toy(tmp_path, words)
    with open_toy(tmp_path, words) as build:
        for planned in build.planned:
            build.settle(planned)
        by_name = {planned.stage.name: planned for planned in build.planned}
        # A note is both words and a space: "a bb" and "bb cc".
        assert count_lengths(build, by_name["notes"], "text") == Counter({4: 1, 5: 1})
        assert count_similarities(build, by_name["pairs"], "similarity") == Counter({0: 2})
