from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.rows import make_key
from pairwright.tasks.report.calibrate_bins import Band, Sampler, choose_grid, cut_bins, measure_spread, show_number
from pairwright.tasks.report.calibrate_candidates import Candidates, Images

BAND = Band(0.7, 0.9)


def spread(values, band=BAND):
    return measure_spread([("one", np.array(values, np.float64))], band)["one"]


def edges(bins):
    return [(show_number(one.low), show_number(one.high), one.side) for one in bins]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.7, "0.70"), (0.9999, "0.9999"), (1.0, "1.00"), (np.nextafter(0.9, 2), "0.90"), (-0.125, "-0.125")],
)
def test_numbers_are_shown_as_thresholds_are_written(value, text):
    assert show_number(float(value)) == text


def test_bins_are_narrow_in_and_around_the_band():
    found = cut_bins(spread(np.arange(600, 1000) / 1000), BAND, width=0.05, least=10)
    assert edges(found) == [
        ("0.60", "0.65", "below"), ("0.65", "0.70", "below"),
        ("0.70", "0.75", "in"), ("0.75", "0.80", "in"), ("0.80", "0.85", "in"), ("0.85", "0.90", "in"),
        ("0.90", "0.95", "above"), ("0.95", "1.00", "above"),
    ]  # fmt: skip


def test_no_bin_holds_a_threshold_inside():
    found = cut_bins(spread(np.arange(500, 1000) / 1000, Band(0.73, 0.9999)), Band(0.73, 0.9999), width=0.02, least=1)
    assert any(one.low == 0.73 and one.side == "in" for one in found)
    assert any(one.high == 0.73 and one.side == "below" for one in found)
    assert ("0.98", "0.9999", "in") in edges(found)
    assert found[-1].side == "in", "nothing lies above"


def test_what_equals_a_threshold_is_in_the_band_as_in_mining():
    # 0.7 as float32 is 0.69999999: mining leaves it out.
    values = [0.7, 0.9, float(np.float32(0.7))]
    counts = spread(values)
    assert [counts.count(one.low, one.high) for one in cut_bins(counts, BAND, width=0.1, least=1)] == [1, 1, 1]
    assert [one.side for one in cut_bins(counts, BAND, width=0.1, least=1)] == ["below", "in", "in"]


def test_sparse_bins_are_joined_and_far_ones_hold_equal_counts():
    few = [0.71, 0.74, 0.86]
    many = np.linspace(0.001, 0.5, 300).tolist()
    counts = spread([*few, *many])
    found = cut_bins(counts, BAND, width=0.02, least=3)
    assert [one for one in edges(found) if one[2] == "in"] == [("0.70", "0.90", "in")]
    below = [counts.count(one.low, one.high) for one in found if one.side == "below"]
    assert len(below) == 3
    assert all(abs(count - 100) <= 2 for count in below)


def test_every_candidate_is_in_one_bin():
    values = np.random.default_rng(1).normal(0.6, 0.3, 5000).clip(-1, 1)
    counts = spread(values)
    for width in (0.005, 0.02, 0.03, 0.2):
        found = cut_bins(counts, BAND, width=width, least=24)
        assert sum(counts.count(one.low, one.high) for one in found) == 5000
        assert all(one.high <= two.low for one, two in pairwise(found))
        assert all(counts.count(one.low, one.high) >= 24 for one in found)


def test_no_candidates_give_no_bins():
    assert cut_bins(spread([]), BAND, width=0.02, least=24) == []


def test_the_grid_has_the_present_thresholds_and_round_ones():
    grid = choose_grid([spread(np.linspace(0.5, 1, 1000))], BAND)
    assert 0.7 in grid.lows
    assert 0.9 in grid.highs
    assert grid.highs[-1] == 1
    assert (np.diff(grid.lows) > 0).all()
    assert grid.lows[0] <= 0.55
    assert grid.lows[-1] >= 0.9
    assert len(grid.lows) <= 14
    assert len(grid.highs) <= 8


def images(number):
    return Images(pa.array(sorted(make_key("image", one) for one in range(number))))


def batch(anchors, others, similarities):
    row = np.arange(len(anchors))
    return Candidates(
        rows=len(anchors), row=row, space=row * 0, anchor=np.array(anchors), other=np.array(others),
        similarity=np.array(similarities, np.float64),
    )  # fmt: skip


def test_numbers_of_images_are_the_first_half_of_their_keys():
    found = images(20)
    assert found.numbers.tolist() == [int(key[:16], 16) for key in found.keys.to_pylist()]


def test_a_pair_found_from_both_ends_is_sampled_once():
    bins = cut_bins(spread([0.8, 0.8, 0.75]), BAND, width=0.2, least=1)
    sampler = Sampler(bins, images(3), per_bin=5)
    sampler.add(batch([0, 1, 0], [1, 0, 2], [0.8, 0.8, 0.75]))
    assert sampler.counts.sum() == 3
    pairs = {
        frozenset(pair) for pair in zip(sampler.sampled.anchor.tolist(), sampler.sampled.other.tolist(), strict=True)
    }
    assert len(sampler.sampled.anchor) == 2
    assert pairs == {frozenset({0, 1}), frozenset({0, 2})}


def test_the_sample_does_not_depend_on_the_order_and_fills_each_bin():
    rng = np.random.default_rng(2)
    anchors, others = rng.integers(0, 200, 4000), rng.integers(0, 200, 4000)
    values = rng.uniform(0.5, 1, 4000)
    bins = cut_bins(spread(values), BAND, width=0.05, least=24)
    results = []
    for order in (np.arange(4000), rng.permutation(4000)):
        sampler = Sampler(bins, images(200), per_bin=12)
        for part in np.array_split(order, 7):
            sampler.add(batch(anchors[part], others[part], values[part]))
        assert np.bincount(sampler.sampled.bin).tolist() == [12] * len(bins)
        assert sampler.counts.sum() == 4000
        results.append(sampler.sampled)
    assert results[0].chance.tolist() == results[1].chance.tolist()
    one = results[0]
    assert all(bins[b].low <= s < bins[b].high for b, s in zip(one.bin, one.similarity, strict=True))


def test_every_pair_has_the_same_chance():
    """Over many datasets of ten pairs, of which three are drawn, each place is drawn in three of ten."""
    drawn = np.zeros(10)
    bins = cut_bins(spread([0.8] * 10), BAND, width=0.2, least=1)
    for number in range(300):
        keys = [make_key(number, "image", one) for one in range(20)]
        sampler = Sampler(bins, Images(pa.array(keys)), per_bin=3)
        sampler.add(batch(np.arange(10), np.arange(10, 20), [0.8] * 10))
        drawn[sampler.sampled.anchor] += 1
    assert drawn.sum() == 900
    # 90 expected, with a standard deviation of 7.9.
    assert np.abs(drawn - 90).max() < 32
