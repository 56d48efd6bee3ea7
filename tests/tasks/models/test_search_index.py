"""The searches against brute force in float64, and their independence of threads, blocks and
batches."""

import json

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.errors import StoreError
from pairwright.tasks.models import search_index
from pairwright.tasks.models.search_index import (
    cells_of,
    measure_recall,
    open_index,
    probes_of,
    search_cells,
    top_k,
)
from pairwright.tasks.store.pool import PLACE

PROBES = 5


def unit(values):
    values = np.asarray(values, dtype=np.float64)
    return (values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)).astype(
        np.float16
    )


def brute(matrix, rows, k):
    """Sort all other rows by the float64 product, ties by row."""
    wide = matrix.astype(np.float64)
    near, products = [], []
    for row in rows:
        ranked = sorted(
            (-float(wide[row] @ wide[other]), other) for other in range(len(matrix)) if other != row
        )[:k]
        near.append([other for _, other in ranked])
        products.append([np.float32(-product) for product, _ in ranked])
    return near, products


def assert_exact(matrix, rows, k, **options):
    near, products = top_k(matrix, np.asarray(rows), k=k, **options)
    assert (near.tolist(), products.tolist()) == brute(matrix, rows, k)


@pytest.fixture(scope="module")
def matrix():
    """400 rows in tight groups, with exact duplicates and zero rows among them."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 24))
    made = unit(centres[rng.integers(0, 40, 400)] + 0.02 * rng.normal(size=(400, 24)))
    made[100:180] = made[100]
    made[300:310] = 0
    return made


@pytest.mark.parametrize("k", [1, 64, 1000])
def test_equals_brute_force(matrix, k):
    assert_exact(matrix, [0, 3, 100, 150, 179, 300, 305, 399], k)


def test_more_duplicates_than_are_found_at_first_are_ranked_by_row():
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
        parts = [
            top_k(matrix, part, k=16, block_bytes=4 * 24 * 37) for part in np.array_split(rows, 33)
        ]
    finally:
        faiss.omp_set_num_threads(before)
    for column in (0, 1):
        assert np.concatenate([part[column] for part in parts]).tobytes() == whole[column].tobytes()


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_equals_brute_force_on_crowded_grids(count, width, k, seed):
    matrix = unit(np.random.default_rng(seed).integers(-1, 2, (count, width)))
    assert_exact(matrix, range(count), k, block_bytes=16 * width)


def test_a_row_may_be_its_own_centre_and_another_only_where_there_is_one():
    matrix = unit(np.eye(5))
    assert top_k(matrix, np.arange(5), k=1, centres=5)[0][:, 0].tolist() == list(range(5))
    assert top_k(matrix, np.arange(5), k=1, centres=2)[0][:, 0].tolist() == [0, 1, 0, 0, 0]
    assert [column.shape for column in top_k(matrix[:1], np.array([0]), k=4)] == [(1, 0)] * 2


@pytest.fixture
def gpu(monkeypatch):
    """Let Faiss search on the CPU what it is given for a GPU, with factors as TF32 rounds them."""
    given = []

    monkeypatch.setenv(PLACE, "3")  # the fourth process of two devices

    def search(_, queries, rows, k, metric, device):
        assert device == 1
        given.append(len(rows))
        queries, rows = (
            (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
            for array in (queries, rows)
        )
        return faiss.knn(queries, rows, k, metric=metric)

    def copy(_, device, index):
        assert device == 1
        given.append(f"{index.nlist} cells")
        return index

    search_index._to_gpu.cache_clear()
    monkeypatch.setattr(search_index, "_gpu", object)
    monkeypatch.setattr(search_index, "GPU_BYTES", 8 * PROBES * 32 * 10)  # ten queries at a time
    monkeypatch.setattr(search_index, "count_devices", lambda: 2)
    monkeypatch.setattr(faiss, "knn_gpu", search, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", copy, raising=False)
    return given


def test_gpu_blocks_take_turns_and_large_index_stays_on_cpu(
    matrix, images, index, gpu, monkeypatch, caplog
):
    def no_room(*_):
        raise RuntimeError(
            "StandardGpuResources: alloc fail type FlatData (cudaMalloc error out of memory [2])"
        )

    monkeypatch.setattr(faiss, "index_cpu_to_gpu", no_room)
    assert_exact(matrix, range(6), 7, block_bytes=24 * 4 * 150)
    assert gpu == [150, 150, 100]
    rows = np.arange(0, 900, 7)
    near, _ = search_cells(images, rows, index=index, k=20, probes=PROBES)
    assert [row[row >= 0].tolist() for row in near] == promised(images, rows, 128, PROBES, 20)
    assert "an index of cells of 900 images is searched on the CPU" in caplog.text
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda *_: 1 / 0)
    search_index._to_gpu.cache_clear()
    with pytest.raises(ZeroDivisionError):
        search_cells(images, rows, index=index, k=20, probes=PROBES)


@pytest.fixture(scope="module")
def images():
    """900 vectors in groups, exact duplicates among them; no order of groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 32))
    made = unit(centres[rng.integers(0, 60, 900)] + 0.4 * rng.normal(size=(900, 32)))
    made[rng.integers(0, 900, 40)] = made[500]
    return made


@pytest.fixture(scope="module")
def index(images, tmp_path_factory):
    return open_index(images, tmp_path_factory.mktemp("images") / "index")


def promised(matrix, rows, cells, probes, k):
    """Return the exact result, in float64: ties go to the lower row."""
    wide = matrix.astype(np.float64)
    towards = wide @ wide[:cells].T
    home = np.argmax(towards, axis=1)  # the first of equals
    near = []
    for row in rows:
        probed = np.argsort(-towards[row], kind="stable")[:probes]
        others = [other for other in np.flatnonzero(np.isin(home, probed)) if other != row]
        near.append(sorted(others, key=lambda other: (-float(wide[row] @ wide[other]), other))[:k])
    return near


@pytest.mark.parametrize("k", [1, 20, 400])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_index_finds_what_is_promised(images, index, k, device, request):
    given = request.getfixturevalue("gpu") if device == "gpu" else []
    assert (index.nlist, index.ntotal) == (128, 900)
    rows = np.arange(0, 900, 7)
    near, products = search_cells(images, rows, index=index, k=k, probes=PROBES)
    assert [row[row >= 0].tolist() for row in near] == promised(images, rows, 128, PROBES, k)
    wide = images.astype(np.float64)
    for row, found, values in zip(rows, near, products, strict=True):
        exact = wide[found[found >= 0]] @ wide[row]
        assert values[: len(exact)].tolist() == exact.astype(np.float32).tolist()
        assert (values[len(exact) :] == -np.inf).all()
    assert given[:1] == ([128] if device == "gpu" else [])


def test_result_is_independent_of_batch_and_cells_when_all_are_probed(images, index):
    rows = np.arange(900)
    whole = search_cells(images, rows, index=index, k=20, probes=PROBES)
    parts = [
        search_cells(images, some, index=index, k=20, probes=PROBES)
        for some in np.array_split(rows, 7)
    ]
    for column in (0, 1):
        assert np.concatenate([part[column] for part in parts]).tobytes() == whole[column].tobytes()
    everywhere, exact = (
        search_cells(images, rows, index=index, k=30, probes=128),
        top_k(images, rows, k=30),
    )
    assert [column.tolist() for column in everywhere] == [column.tolist() for column in exact]


def test_the_first_makes_the_index_and_others_open_it(images, tmp_path, monkeypatch):
    made = open_index(images, tmp_path / "index")
    monkeypatch.setattr(search_index, "_make_index", None)
    assert open_index(images, tmp_path / "index") is made
    assert [path.name for path in (tmp_path / "index").iterdir() if path.name != "lock"] == [
        "cells.faiss"
    ]


def test_an_index_that_finds_no_room_is_an_error_of_the_disk(images, tmp_path, monkeypatch):
    write = faiss.write_index
    monkeypatch.setattr(faiss, "write_index", lambda index, _: write(index, "/dev/full"))
    with pytest.raises(StoreError, match=r"cells\.faiss: could not be written"):
        open_index(images, tmp_path / "index")


def test_recall_counts_what_the_cells_hide(images, tmp_path):
    index = open_index(images, tmp_path / "index")
    rows = np.arange(900 - search_index.SAMPLE, 900)
    near, products = top_k(images, rows, k=20)
    found = promised(images, rows, 128, 2, 20)
    wanted = [one[scores >= 0.8].tolist() for one, scores in zip(near, products, strict=True)]
    hits = sum(len(set(some) & set(one)) for some, one in zip(wanted, found, strict=True))
    assert measure_recall(images, index, k=20, probes=2, band=0.8) == (hits, sum(map(len, wanted)))
    assert hits < sum(map(len, wanted))
    assert measure_recall(images, index, k=20, probes=128, band=0.8) == (sum(map(len, wanted)),) * 2
    place, asked = tmp_path / "index", {"k": 20, "probes": 2, "band": 0.8}
    first, again = (search_index.find_recall(place, images, index, **asked) for _ in range(2))
    assert (first[2], again[2], first[:2]) == (True, False, again[:2])
    (file,) = (tmp_path / "index").glob("recall*")
    assert json.loads(file.read_text()) == [hits, first[1]]


def test_the_rule_for_cells_and_probes():
    for count, cells, probes in [
        (3, 3, 3),
        (100, 32, 16),
        (250_000, 2048, 128),
        (1_000_000, 4096, 256),
    ]:
        assert (cells_of(count), probes_of(cells_of(count), 0)) == (cells, probes)
        assert probes_of(cells, 7) == min(7, cells)


def test_float32_products_are_off_by_less_than_the_bound():
    rng = np.random.default_rng(0)
    for width in (3, 64, 1024):
        made = unit(
            np.concatenate([rng.normal(size=(200, width)), np.abs(rng.normal(size=(100, width)))])
        )
        exact = made.astype(np.float64) @ made.astype(np.float64).T
        wide = made.astype(np.float32)
        assert np.abs(wide @ wide.T - exact).max() <= search_index.rounding(width) < 2e-4
