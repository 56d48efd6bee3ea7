import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.tasks.report.tally_values import FINE, Tally, tally

SHARES = st.floats(0, 1, width=32)


def test_values_are_counted_over_batches():
    found = tally([np.array([3, 1, 3]), np.array([], int), np.array([2, 3])], step=1)
    assert (found.values.tolist(), found.counts.tolist(), found.total) == ([1, 2, 3], [1, 1, 3], 5)
    assert Tally().total == 0


@given(st.lists(SHARES, min_size=1, max_size=60), SHARES)
def test_quantiles_and_bins_are_those_of_all_values(values, share):
    array = np.array(values, np.float32)
    found = tally([array[:7], array[7:]])
    every = found.values.repeat(found.counts)
    assert found.quantile(share) == pytest.approx(np.quantile(every, share))
    assert found.quantile(share) == pytest.approx(np.quantile(array, share), abs=FINE)
    edges = np.linspace(0, 1, 5)
    assert found.histogram(edges).tolist() == np.histogram(every, edges)[0].tolist()


def test_what_is_held_does_not_grow_with_the_rows():
    rng = np.random.default_rng(1)
    found = tally(rng.random(200_000, np.float32) for _ in range(3))
    assert found.total == 600_000
    assert len(found.values) <= 10_001


def test_a_threshold_has_what_is_at_it():
    found = tally([np.array([0.7, 0.78, 0.9], np.float32)])
    assert [found.at_least(value) for value in (0.5, 0.7, 0.78, 0.7801, 0.9, 0.95)] == [3, 3, 2, 1, 1, 0]
