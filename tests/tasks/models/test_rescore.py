"""Candidates are ranked by exact products; a search goes on until the nearest are sure."""

import numpy as np

from pairwright.tasks.models import rescore
from pairwright.tasks.models.rescore import rank, rounding, settle


def unit(values):
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16)


MATRIX = unit(np.random.default_rng(0).normal(size=(50, 8)))


def test_candidates_are_ranked_and_gaps_are_left_out(monkeypatch):
    monkeypatch.setattr(rescore, "CHUNK_BYTES", 8 * 8 * 4)  # one row at a time
    candidates = np.array([[3, -1, 9, 7], [-1, -1, -1, -1], [5, 6, -1, 5]])
    near, products = rank(MATRIX, np.array([0, 1, 2]), candidates, k=3)
    wide = MATRIX.astype(np.float64)
    assert sorted(near[0].tolist()) == [3, 7, 9]
    assert products[0].tolist() == sorted((float(wide[0] @ wide[other]) for other in (3, 7, 9)), reverse=True)
    assert (near[1].tolist(), products[1].tolist()) == ([-1] * 3, [-np.inf] * 3)
    assert sorted(near[2].tolist()) == [5, 5, 6]


def test_ties_go_to_the_lower_row():
    same = np.repeat(MATRIX[:1], 6, axis=0)
    assert rank(same, np.array([2]), np.array([[5, 1, 4, 3]]), k=3)[0].tolist() == [[1, 3, 4]]


def test_a_search_goes_further_down_until_the_error_leaves_no_other_a_chance():
    """Scores are off by as much as half the whole range, so that nearly all rows have to be looked at."""
    wide = MATRIX.astype(np.float64)
    exact = wide @ wide.T
    scores = (exact + np.random.default_rng(1).uniform(-0.5, 0.5, exact.shape)).astype(np.float32)
    asked = []

    def look(owed, reach):
        asked.append((len(owed), reach))
        found = np.argsort(-scores[owed], axis=1)[:, :reach]
        return found, np.take_along_axis(scores[owed], found, axis=1)

    rows = np.arange(50)
    near, _ = settle(MATRIX, rows, k=3, count=50, itself=True, error=0.5, look=look)
    assert near.tolist() == np.argsort(-exact, axis=1, kind="stable")[:, :3].tolist()
    assert asked[0] == (50, 12)
    assert asked[-1][1] > 12
    asked.clear()
    settle(MATRIX, rows, k=3, count=50, itself=True, error=0, look=look)
    assert asked == [(50, 12)]


def test_float32_products_are_off_by_less_than_the_bound():
    rng = np.random.default_rng(0)
    for width in (3, 64, 1024):
        made = unit(np.concatenate([rng.normal(size=(200, width)), np.abs(rng.normal(size=(100, width)))]))
        exact = made.astype(np.float64) @ made.astype(np.float64).T
        assert np.abs(made.astype(np.float32) @ made.astype(np.float32).T - exact).max() <= rounding(width) < 2e-4
