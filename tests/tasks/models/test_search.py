"""The search against brute force in float64, and its independence of threads, blocks and batches."""

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.models import search_scan
from pairwright.tasks.models.search import top_k


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


@settings(max_examples=40)
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


def test_only_the_rows_named_are_searched(matrix):
    rows, among = np.array([0, 3, 150, 399]), np.arange(0, 400, 3)
    near, products = top_k(matrix, rows, k=9, among=among)
    for row, found, values in zip(rows, near, products, strict=True):
        places, exact = brute(matrix[np.append(among[among != row], row)], [(among != row).sum()], 9)
        assert among[among != row][places[0]].tolist() == found.tolist()
        assert exact[0].tolist() == values.tolist()
    near, products = top_k(matrix, np.array([6, 7]), k=3, among=np.array([6, 9]))
    assert (near[0].tolist(), products[0, 1]) == ([9, -1], -np.inf)
    assert sorted(near[1].tolist()) == [6, 9]


def test_a_row_may_find_itself():
    matrix = unit(np.eye(5))
    assert top_k(matrix, np.arange(5), k=1, itself=True)[0][:, 0].tolist() == list(range(5))


@pytest.fixture
def bfloat(monkeypatch):
    """Use torch's kernel also for small searches, and where the processor only emulates it."""
    pytest.importorskip("torch")
    monkeypatch.setattr(search_scan, "WORTH_TORCH", 0)
    monkeypatch.setattr(search_scan, "has_bfloat", lambda: True)


@pytest.mark.parametrize("k", [1, 7, 64, 399])
@pytest.mark.usefixtures("bfloat")
def test_bfloat_preselects_and_nothing_is_lost(matrix, k):
    near, products = top_k(matrix, np.arange(400), k=k, block_bytes=24 * 2 * 50)
    expected = brute(matrix, range(400), k)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


@pytest.mark.usefixtures("bfloat")
def test_bfloat_tells_apart_what_it_cannot_see():
    """All products round to the same number: every row must be scored exactly."""
    rng = np.random.default_rng(3)
    matrix = unit(rng.normal(size=256) + 1e-3 * rng.normal(size=(700, 256)))
    near, products = top_k(matrix, np.arange(0, 700, 70), k=20)
    expected = brute(matrix, np.arange(0, 700, 70), 20)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()


@pytest.fixture
def bounded(monkeypatch):
    """Bound products also in small searches; tell of each block whether its products were computed one by one."""
    pays = []

    def add_bounded(self, *args, add=search_scan.Best.add_bounded, **options):
        pays.append(add(self, *args, **options))
        return pays[-1]

    monkeypatch.setattr(search_scan, "WORTH_DIRECTIONS", 0)
    monkeypatch.setattr(search_scan.Best, "add_bounded", add_bounded)
    return pays


@pytest.mark.parametrize("k", [1, 7, 64, 399])
def test_products_that_are_not_computed_lose_nothing(bounded, k):
    rng = np.random.default_rng(2)
    matrix = unit(rng.normal(size=(400, 6)) @ rng.normal(size=(6, 40)) + 0.2 * rng.normal(size=(400, 40)))
    matrix[100:130] = matrix[100]
    near, products = top_k(matrix, np.arange(400), k=k, block_bytes=40 * 4 * 10)
    expected = brute(matrix, range(400), k)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()
    assert any(bounded) == (k < 64)


def test_products_of_vectors_in_all_directions_are_computed_at_once(bounded):
    """Bounds leave too many of them: they are tried after 4, 8, 16 and 32 blocks."""
    matrix = unit(np.random.default_rng(7).normal(size=(600, 60)))
    near, products = top_k(matrix, np.arange(100), k=9, block_bytes=60 * 4 * 12)
    expected = brute(matrix, range(100), 9)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()
    assert bounded == [False] * 4


@pytest.fixture
def gpu(monkeypatch):
    """Let Faiss search on the CPU what it is given for a GPU, in float32."""
    given = []

    def search(_, queries, rows, k, metric):
        given.append(len(rows))
        return faiss.knn(queries, rows, k, metric=metric)

    monkeypatch.setattr(search_scan, "_gpu", object)
    monkeypatch.setattr(faiss, "knn_gpu", search, raising=False)
    return given


@pytest.mark.parametrize("k", [1, 7, 64, 399])
def test_what_a_gpu_finds_in_blocks_is_put_together(matrix, gpu, k):
    near, products = top_k(matrix, np.arange(400), k=k, block_bytes=24 * 4 * 150)
    expected = brute(matrix, range(400), k)
    assert near.tolist() == expected[0].tolist()
    assert products.tolist() == expected[1].tolist()
    assert gpu[:3] == [150, 150, 100]


@pytest.mark.parametrize("kernel", [search_scan.BfloatKernel(), search_scan.FloatKernel()], ids=["bfloat", "float"])
@pytest.mark.parametrize("width", [3, 64, 1024])
def test_products_are_off_by_less_than_the_bound(kernel, width):
    pytest.importorskip("torch")
    rng = np.random.default_rng(width)
    rows = [rng.normal(size=(200, width)), np.abs(rng.normal(size=(100, width))), rng.normal(size=(50, width)) ** 9]
    # One more than a power of two by a bit less than half a step of bfloat16: the worst that rounding can do.
    rows += [np.full((2, width), 1 + 0.0038), np.eye(3, width)]
    made = unit(np.concatenate(rows))
    steps = kernel.steps(kernel.products(kernel.encode(made), kernel.encode(made)))
    exact = made.astype(np.float64) @ made.astype(np.float64).T
    assert np.abs(kernel.values(steps) - exact).max() <= kernel.error(width) < 0.011
    order = np.argsort(steps, axis=None)
    assert (np.diff(kernel.values(steps).reshape(-1)[order]) >= 0).all()


@pytest.mark.parametrize("kernel", [search_scan.BfloatKernel(), search_scan.FloatKernel()], ids=["bfloat", "float"])
@pytest.mark.parametrize("lowest", [-1, 0])
def test_above_a_floor_is_what_has_a_higher_step(kernel, lowest):
    pytest.importorskip("torch")
    made = unit(np.random.default_rng(5).normal(size=(300, 8)))
    products = kernel.products(kernel.encode(made), kernel.encode(made))
    steps = kernel.steps(products)
    floors = np.maximum(steps[np.arange(300)[::-1], np.arange(300)], -32768 if lowest else 0)
    above = kernel.above(products, floors)
    sure = np.abs(steps.astype(int) - floors) > 1  # between two steps, float32 may round to either
    assert np.array_equal(above[sure], (steps > floors)[sure])
    assert 0 < above.mean() < 1
    assert sure.mean() > 0.9
