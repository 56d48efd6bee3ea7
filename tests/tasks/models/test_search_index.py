"""The searches against brute force in float64; independent of threads, blocks and batches."""

import json

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.errors import StoreError
from pairwright.tasks.models import search_index
from pairwright.tasks.models.search_index import (
    choose_cells,
    find_recall,
    measure_recall,
    open_neighbour_index,
    probes_of,
    search_cells,
    top_k,
)
from pairwright.tasks.store.pool import PLACE

PROBES = 5
SOME = np.arange(0, 900, 7)
CELLS = 128
"""How many an index of 900 images has."""


def unit(values):
    values = np.asarray(values, dtype=np.float64)
    norms = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)
    return (values / norms).astype(np.float16)


def grouped(groups, count, width, spread):
    """Return vectors in groups, in no order of groups, and a generator."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(groups, width))[rng.integers(0, groups, count)]
    return unit(centres + spread * rng.normal(size=(count, width))), rng


def rank(matrix, row, others, k):
    """Return the nearest of other rows by the float64 product, ties by row, with the products."""
    wide = matrix.astype(np.float64)
    ranked = sorted((-float(wide[row] @ wide[other]), other) for other in others if other != row)
    return [other for _, other in ranked[:k]], [np.float32(-product) for product, _ in ranked[:k]]


def assert_exact(matrix, rows, k, **options):
    near, products = top_k(matrix, np.asarray(rows), k=k, **options)
    expected = [rank(matrix, row, range(len(matrix)), k) for row in rows]
    assert near.tolist() == [numbers for numbers, _ in expected]
    assert products.tolist() == [values for _, values in expected]


@pytest.fixture(scope="module")
def matrix():
    """Return 400 rows in tight groups, with exact duplicates and zero rows among them."""
    rows, _ = grouped(40, 400, 24, 0.02)
    rows[100:180] = rows[100]
    rows[300:310] = 0
    return rows


@pytest.mark.parametrize("k", [1, 64, 1000])
def test_equals_brute_force(matrix, k):
    assert_exact(matrix, [0, 3, 100, 150, 179, 300, 305, 399], k)


def test_more_duplicates_than_are_found_at_first_are_ranked_by_row():
    duplicates = unit(np.vstack([np.ones((300, 8)), np.eye(8)]))
    near, _ = top_k(duplicates, np.array([299, 0]), k=5)
    assert near.tolist() == [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]


def assert_same_bytes(parts, whole):
    for column in (0, 1):
        joined = np.concatenate([part[column] for part in parts])
        assert joined.tobytes() == whole[column].tobytes()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bytes_do_not_depend_on_threads_blocks_or_batches(matrix, threads):
    rows, block = np.arange(len(matrix)), 4 * 24 * 37
    whole = top_k(matrix, rows, k=16)
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        batches = np.array_split(rows, 33)
        parts = [top_k(matrix, batch, k=16, block_bytes=block) for batch in batches]
    finally:
        faiss.omp_set_num_threads(before)
    assert_same_bytes(parts, whole)


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_equals_brute_force_on_crowded_grids(count, width, k, seed):
    grid = unit(np.random.default_rng(seed).integers(-1, 2, (count, width)))
    assert_exact(grid, range(count), k, block_bytes=16 * width)


def test_a_row_may_be_its_own_centre_and_another_only_where_there_is_one():
    rows = unit(np.eye(5))
    assert top_k(rows, np.arange(5), k=1, centres=5)[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert top_k(rows, np.arange(5), k=1, centres=2)[0][:, 0].tolist() == [0, 1, 0, 0, 0]
    assert [column.shape for column in top_k(rows[:1], np.array([0]), k=4)] == [(1, 0)] * 2


@pytest.fixture
def cpu():
    return []


@pytest.fixture
def gpu(monkeypatch):
    """Let Faiss search on the CPU what it has for a GPU, with factors as TF32 rounds them.

    This is the fourth process of two devices, with room for ten queries at a time.
    """
    blocks = []

    def to_tf32(array):
        return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)

    def search(_, queries, rows, k, metric, device):
        assert device == 1
        blocks.append(len(rows))
        return faiss.knn(to_tf32(queries), to_tf32(rows), k, metric=metric)

    def copy(_, device, index):
        assert device == 1
        return index

    search_index._to_gpu.cache_clear()
    monkeypatch.setenv(PLACE, "3")
    monkeypatch.setattr(search_index, "_gpu", object)
    monkeypatch.setattr(search_index, "GPU_BYTES", 8 * PROBES * 32 * 10)
    monkeypatch.setattr(search_index, "count_devices", lambda: 2)
    monkeypatch.setattr(faiss, "knn_gpu", search, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", copy, raising=False)
    return blocks


@pytest.fixture(scope="module")
def images():
    """Return 900 vectors in groups, exact duplicates among them."""
    rows, rng = grouped(60, 900, 32, 0.4)
    rows[rng.integers(0, 900, 40)] = rows[500]
    return rows


@pytest.fixture(scope="module")
def index(images, tmp_path_factory):
    return open_neighbour_index(images, tmp_path_factory.mktemp("images") / "index")


def promised(matrix, rows, probes, k):
    """Return the exact results among the probed cells."""
    wide = matrix.astype(np.float64)
    towards = wide @ wide[:CELLS].T
    home = np.argmax(towards, axis=1)  # the first of equals
    near = []
    for row in rows:
        probed = np.argsort(-towards[row], kind="stable")[:probes]
        near.append(rank(matrix, row, np.flatnonzero(np.isin(home, probed)), k)[0])
    return near


@pytest.mark.parametrize("k", [1, 20, 400])
@pytest.mark.parametrize(("device", "blocks"), [("cpu", []), ("gpu", [CELLS])])
def test_the_index_finds_what_is_promised(images, index, k, device, blocks, request):
    searched = request.getfixturevalue(device)
    assert (index.nlist, index.ntotal) == (CELLS, 900)
    near, products = search_cells(images, SOME, index=index, k=k, probes=PROBES)
    assert [row[row >= 0].tolist() for row in near] == promised(images, SOME, PROBES, k)
    wide = images.astype(np.float64)
    for row, numbers, values in zip(SOME, near, products, strict=True):
        exact = wide[numbers[numbers >= 0]] @ wide[row]
        assert values[: len(exact)].tolist() == exact.astype(np.float32).tolist()
        assert (values[len(exact) :] == -np.inf).all()
    assert searched[:1] == blocks


def test_gpu_blocks_take_turns(matrix, gpu):
    assert_exact(matrix, range(6), 7, block_bytes=24 * 4 * 150)
    assert gpu == [150, 150, 100]


@pytest.mark.usefixtures("gpu")
def test_an_index_that_the_gpu_has_no_room_for_stays_on_the_cpu(images, index, monkeypatch, caplog):
    def no_room(*_):
        message = "StandardGpuResources: alloc fail type FlatData (cudaMalloc error out of memory"
        raise RuntimeError(message)

    monkeypatch.setattr(faiss, "index_cpu_to_gpu", no_room)
    near, _ = search_cells(images, SOME, index=index, k=20, probes=PROBES)
    assert [row[row >= 0].tolist() for row in near] == promised(images, SOME, PROBES, 20)
    assert "an index of cells of 900 images is searched on the CPU" in caplog.text


@pytest.mark.usefixtures("gpu")
def test_other_faults_of_the_gpu_are_errors(images, index, monkeypatch):
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        search_cells(images, SOME, index=index, k=20, probes=PROBES)


def test_an_index_does_not_depend_on_the_batch(images, index):
    rows = np.arange(900)
    batches = [rows, *np.array_split(rows, 7)]
    whole, *parts = (search_cells(images, b, index=index, k=20, probes=PROBES) for b in batches)
    assert_same_bytes(parts, whole)


def test_an_index_is_exact_where_all_cells_are_probed(images, index):
    everywhere = search_cells(images, np.arange(900), index=index, k=30, probes=CELLS)
    exact = top_k(images, np.arange(900), k=30)
    assert [column.tolist() for column in everywhere] == [column.tolist() for column in exact]


def test_the_first_makes_the_index_and_others_open_it(images, tmp_path, monkeypatch):
    index = open_neighbour_index(images, tmp_path / "index")
    monkeypatch.setattr(search_index, "_make_index", None)
    assert open_neighbour_index(images, tmp_path / "index") is index
    assert {path.name for path in (tmp_path / "index").iterdir()} - {"lock"} == {"cells.faiss"}


def test_an_index_that_finds_no_room_is_an_error_of_the_disk(images, tmp_path, monkeypatch):
    write = faiss.write_index
    monkeypatch.setattr(faiss, "write_index", lambda index, _: write(index, "/dev/full"))
    with pytest.raises(StoreError, match=r"cells\.faiss: could not be written"):
        open_neighbour_index(images, tmp_path / "index")


def test_recall_counts_what_the_cells_hide(images, tmp_path):
    folder = tmp_path / "index"
    index = open_neighbour_index(images, folder)
    rows = np.arange(900 - search_index.SAMPLE, 900)
    near, products = top_k(images, rows, k=20)
    exact = [set(row[scores >= 0.8].tolist()) for row, scores in zip(near, products, strict=True)]
    results = promised(images, rows, 2, 20)
    hits = sum(len(both[0] & set(both[1])) for both in zip(exact, results, strict=True))
    count = sum(map(len, exact))
    assert hits < count
    assert measure_recall(images, index, k=20, probes=2, band=0.8) == (hits, count)
    assert measure_recall(images, index, k=20, probes=CELLS, band=0.8) == (count, count)
    settings = {"k": 20, "probes": 2, "band": 0.8}
    first, again = (find_recall(folder, images, index, **settings) for _ in range(2))
    assert (first[2], again[2], first[:2]) == (True, False, again[:2])
    (file,) = folder.glob("recall*")
    assert json.loads(file.read_text()) == [hits, first[1]]


@pytest.mark.parametrize(
    ("count", "cells", "probes"),
    [(3, 3, 3), (100, 32, 16), (250_000, 2048, 128), (1_000_000, 4096, 256)],
)
def test_the_rule_for_cells_and_probes(count, cells, probes):
    assert choose_cells(count) == cells
    assert probes_of(cells, 0) == probes
    assert probes_of(cells, 7) == min(7, cells)


@pytest.mark.parametrize("width", [3, 64, 1024])
def test_float32_products_are_off_by_less_than_the_bound(width):
    rng = np.random.default_rng(width)
    positive = np.abs(rng.normal(size=(100, width)))
    rows = unit(np.concatenate([rng.normal(size=(200, width)), positive]))
    exact, wide = rows.astype(np.float64) @ rows.astype(np.float64).T, rows.astype(np.float32)
    assert np.abs(wide @ wide.T - exact).max() <= search_index.rounding(width) < 2e-4
