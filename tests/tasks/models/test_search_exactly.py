"""Widened numbers are NumPy's, and so are products of pairs, but for the order of their sums."""

import numpy as np
import pytest

from pairwright.tasks.models.search_exactly import multiply_pairs, widen


def test_every_finite_number_is_widened_as_numpy_does():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(2, -1)[:, ::-1]
    assert widen(finite).tobytes() == finite.astype(np.float32).tobytes()
    assert widen(finite[:0]).shape == (0, finite.shape[1])


def test_products_of_pairs():
    rng = np.random.default_rng(0)
    rows, queries = (rng.normal(size=(count, 37)).astype(np.float32) for count in (5, 7))
    of_row, of_query = np.array([4, 0, 0, 3]), np.array([6, 6, 0, 2])
    expected = (rows.astype(np.float64) @ queries.astype(np.float64).T)[of_row, of_query]
    assert multiply_pairs(rows, queries, of_row=of_row, of_query=of_query) == pytest.approx(expected, abs=1e-5)
    assert multiply_pairs(rows, queries, of_row=of_row[:0], of_query=of_query[:0]).shape == (0,)
