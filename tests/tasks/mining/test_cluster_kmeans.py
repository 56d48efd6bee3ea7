import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from sklearn.cluster import KMeans, k_means

from pairwright.tasks.mining.cluster_kernel import new_scratch
from pairwright.tasks.mining.cluster_kmeans import BEST, LABELS, POINTS, _settle, fill_labels

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@njit
def settle(rows: Floats, n: int, centres: Floats, marks: Integers, tolerance: float) -> None:
    _settle(rows, n, centres, marks, tolerance, 0)


@njit
def label(rows: Floats, n: int, pairs: Floats, draws: Floats, centres: Floats, marks: Integers) -> None:
    fill_labels(rows, n, pairs, draws, centres, marks)


def centred(rng: np.random.Generator, n: int, dims: int) -> Floats:
    points = rng.normal(size=(n, dims)) ** 3
    return points - points.mean(0)


def settled(points: Floats, first: Floats) -> tuple[list[int], Floats]:
    n, dims = points.shape
    scratch = new_scratch(n, 8, len(first))
    scratch.rows[POINTS : POINTS + dims, :n] = points.T
    centres = first.copy()
    settle(scratch.rows, n, centres, scratch.marks, 1e-4 * points.var(0).mean())
    return scratch.marks[LABELS, :n].tolist(), centres


def test_runs_end_where_scikit_learns_do():
    rng = np.random.default_rng(1)
    for n in (5, 8, 20, 64):
        for _ in range(10):
            points = centred(rng, n, 2)
            first = points[rng.permutation(n)[:4]]
            model = KMeans(4, init=first, n_init=1).fit(points)
            labels, centres = settled(points, first)
            assert labels == model.labels_.tolist()
            assert centres == pytest.approx(model.cluster_centers_)


@pytest.mark.parametrize("far", [1, 2])
def test_an_empty_cluster_takes_the_furthest_point(far: int):
    rng = np.random.default_rng(2)
    points = centred(rng, 30, 2)
    first = points[:4].copy()
    first[-far:] = [[1e6, 1e6], [-1e6, 1e6]][:far]
    labels, centres = settled(points, first)
    model = KMeans(4, init=first, n_init=1).fit(points)
    assert labels == model.labels_.tolist()
    assert centres == pytest.approx(model.cluster_centers_)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_the_best_of_ten_is_scikit_learns(k: int):
    # The constant column is the one that the kernel leaves out; it counts in the tolerance, which ends runs of 900.
    rng = np.random.default_rng(3)
    for n in (7, 12, 33, 64, 900, 900, 900):
        points = np.pad(np.cbrt(centred(rng, n, k - 1)), ((0, 0), (0, 1)))
        random, draws = np.random.RandomState(5), np.random.RandomState(5).random_sample(2000)
        random.random_sample(n)
        wanted = k_means(points, k, random_state=random, n_init=10)[1]
        scratch = new_scratch(n, 8, k)
        scratch.rows[POINTS : POINTS + k, :n] = points.T
        label(scratch.rows, n, scratch.pairs, draws, scratch.centres, scratch.marks)
        assert np.array_equal(scratch.marks[BEST, :n], wanted)
