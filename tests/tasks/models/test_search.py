"""The search against brute force in float64, and its independence of threads, blocks and batches."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.models.search import top_k


def unit(values):
    values = np.asarray(values, dtype=np.float64)
    return (values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)).astype(np.float16)


def brute(matrix, rows, k):
    """Sort all other rows by the float64 product, ties by row."""
    wide = matrix.astype(np.float64)
    near, products = [], []
    for row in rows:
        ranked = sorted((-float(wide[row] @ wide[other]), other) for other in range(len(matrix)) if other != row)[:k]
        near.append([other for _, other in ranked])
        products.append([np.float32(-product) for product, _ in ranked])
    return np.array(near), np.array(products)


@pytest.fixture(scope="module")
def matrix():
    """400 rows in tight groups, with exact duplicates and zero rows among them."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 24))
    made = unit(centres[rng.integers(0, 40, 400)] + 0.02 * rng.normal(size=(400, 24)))
    made[100:180] = made[100]
    made[300:310] = 0
    return made


@pytest.mark.parametrize("k", [1, 7, 64, 399, 1000])
def test_equals_brute_force(matrix, k):
    rows = np.array([0, 3, 100, 150, 179, 300, 305, 399])
    near, products = top_k(matrix, rows, k=k)
    expected = brute(matrix, rows, k)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


def test_duplicates_are_neighbours_but_the_row_itself_is_not(matrix):
    near, products = top_k(matrix, np.array([150]), k=10)
    assert near[0].tolist() == list(range(100, 110))
    assert np.ptp(products[0]) == 0


def test_more_duplicates_than_are_preselected_are_ranked_by_row():
    matrix = unit(np.vstack([np.ones((300, 8)), np.eye(8)]))
    near, _ = top_k(matrix, np.array([299, 0]), k=5)
    assert near.tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bytes_do_not_depend_on_threads_blocks_or_batches(matrix, threads):
    rows = np.arange(len(matrix))
    whole = top_k(matrix, rows, k=16)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        parts = [top_k(matrix, part, k=16, block_bytes=4 * 24 * 37) for part in np.array_split(rows, 33)]
    finally:
        faiss.omp_set_num_threads(before)
    for column in (0, 1):
        assert np.concatenate([part[column] for part in parts]).tobytes() == whole[column].tobytes()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_equals_brute_force_on_crowded_grids(count, width, k, seed):
    matrix = unit(np.random.default_rng(seed).integers(-1, 2, (count, width)))
    near, products = top_k(matrix, np.arange(count), k=k, block_bytes=16 * width)
    expected = brute(matrix, range(count), k)
    assert near.shape == (count, min(k, count - 1))
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


def test_wide_vectors_that_differ_in_the_last_bits():
    rng = np.random.default_rng(3)
    matrix = unit(rng.normal(size=1792) + 1e-3 * rng.normal(size=(500, 1792)))
    near, products = top_k(matrix, np.arange(0, 500, 50), k=20)
    expected = brute(matrix, np.arange(0, 500, 50), 20)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


def test_nothing_to_find():
    near, products = top_k(unit([[1, 0]]), np.array([0]), k=4)
    assert near.shape == products.shape == (1, 0)
