import numpy as np

from pairwright.tasks.report.sample_pairs import choose, sample_pairs, share_out
from pairwright.tasks.report.tables import Tables
from tests.tasks.report.handmade import build_handmade, make_whole


def test_small_splits_are_seen():
    assert share_out([9000, 50, 3], 60) == [47, 10, 3]
    assert share_out([9000, 500, 500], 60) == [40, 10, 10]
    assert share_out([80, 10, 10], 60) == [40, 10, 10]
    assert share_out([2, 1, 0], 60) == [2, 1, 0]
    assert share_out([5], 0) == [0]


def test_sample_covers_the_range_of_each_split():
    splits = np.array(["train"] * 900 + ["test"] * 100)
    chosen = choose(splits, 30)
    assert len(set(chosen.tolist())) == 30
    train = np.sort(chosen[chosen < 900])
    # One in each of equal slices, so that no gap is wider than two slices.
    assert np.diff(np.concatenate([[0], train, [900]])).max() <= 2 * 900 / len(train)
    assert np.array_equal(chosen, choose(splits, 30))
    assert not np.array_equal(chosen, np.sort(chosen)), "splits and scores are mixed"


def test_sample_of_a_dataset(tmp_path):
    made = make_whole()
    keys = {row.key for row in made.of("pairs")}
    with build_handmade(tmp_path, made) as (build, _):
        few, all_of_them = sample_pairs(Tables(build), 7), sample_pairs(Tables(build), 1000)
        assert sample_pairs(Tables(build), 0) == []
    assert len(few) == len(set(few)) == 7
    assert sorted(all_of_them) == sorted(keys)
    splits = {row.subject: row.split for row in made.of("splits")}
    assert {"train", "validation", "test"} <= {splits.get(key) for key in few}


def test_pairs_without_splits_are_sampled_too(tmp_path):
    with build_handmade(tmp_path, make_whole(), until="pairs") as (build, _):
        assert len(sample_pairs(Tables(build), 5)) == 5
