"""Faiss on the GPU finds what it finds on the CPU, to the byte, and its scores are off by less than
is allowed for."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairwright.tasks.models import search_index
from pairwright.tasks.models.search_index import (
    open_neighbour_index,
    probes_of,
    search_cells,
    top_k,
)

pytestmark = pytest.mark.gpu
COUNT, WIDTH, QUERIES, K = 10_000, 768, 1_000, 64


@pytest.fixture(autouse=True)
def faiss_on_a_gpu(dry: bool) -> None:
    if not dry and not search_index.count_devices():
        pytest.skip(
            "this Faiss finds no GPU: .venv/bin/python -m pip uninstall -y faiss-cpu, then the "
            "same with install "
            "faiss-gpu"
        )


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return unit vectors in groups, larger numbers in front, some rows twice; mapped, so that the
    GPU holds them."""
    rng = np.random.default_rng(0)
    weights = np.arange(1, WIDTH + 1) ** -0.5
    centres = rng.normal(size=(COUNT // 20, WIDTH)) * weights
    made = (
        centres[rng.integers(0, len(centres), COUNT)]
        + 0.5 * rng.normal(size=(COUNT, WIDTH)) * weights
    )
    made[rng.integers(0, COUNT, 200)] = made[7]
    path = tmp_path_factory.mktemp("vectors") / "matrix.npy"
    np.save(path, (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16))
    return np.load(path, mmap_mode="r")


@pytest.fixture(params=["held", "in blocks"])
def matrix(request: pytest.FixtureRequest, held: Any) -> Any:
    """Return them as the GPU gets them: all at once, or blocks of them in turns."""
    return held if request.param == "held" else np.array(held)


def compare(search: Any, monkeypatch: pytest.MonkeyPatch, figure: Any) -> None:
    """Search on the GPU and then without it."""
    seconds, found = [], []
    for gpu in (True, False):
        if not gpu:
            monkeypatch.setattr(search_index, "_gpu", lambda: None)
        search()  # vectors go to the GPU, and memory is taken
        began = time.perf_counter()
        found.append(search())
        seconds.append(time.perf_counter() - began)
    different = sum(int((one != other).sum()) for one, other in zip(*found, strict=True))
    rates = " and ".join(f"{QUERIES / one:,.0f}" for one in seconds)
    figure(f"{different} of {2 * QUERIES * K:,} numbers differ")
    figure(f"{rates} queries/s with the GPU and without")
    assert not different


def test_the_exact_search(matrix: Any, monkeypatch: pytest.MonkeyPatch, figure: Any):
    rows = np.arange(QUERIES)
    compare(lambda: top_k(matrix, rows, k=K), monkeypatch, figure)


def test_the_index(held: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Any):
    rows, index = np.arange(QUERIES), open_neighbour_index(held, tmp_path / "index")
    probes = probes_of(index.nlist, 0)
    compare(lambda: search_cells(held, rows, index=index, k=K, probes=probes), monkeypatch, figure)


def test_a_score_is_off_by_less_than_its_bound(matrix: Any, figure: Any):
    queries = np.arange(200)
    found, scores = search_index._compare(
        matrix[queries].astype(np.float32), matrix, reach=K, step=4096
    )
    wide = matrix.astype(np.float64)
    exact = np.einsum("qkw,qw->qk", wide[found], wide[queries], optimize=True)
    error, bound = np.abs(scores - exact).max(), search_index.rounding(WIDTH)
    figure(f"off by {error:.2g} at the most, {bound:.2g} is allowed")
    assert error <= bound
