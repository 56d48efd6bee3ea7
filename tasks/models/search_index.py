"""Nearest neighbours by inner product in a matrix of unit vectors, with Faiss on a CPU or a GPU.

Faiss's results, and a margin, are scored again exactly: products of float16 numbers are multiples
of 2^-48, and their sums for unit vectors fit into a float64. So results depend neither on threads,
machine nor batching. Ties go to the lower row.

``top_k`` compares all rows, a block at a time. ``search_cells`` searches an
``IndexIVFScalarQuantizer`` whose centres are the images of the lowest keys (hashes, so a fair
sample): nothing is trained, and an index is a function of the images. It needs two to four times
the probes of k-means' centres for the same recall.

On a GPU, blocks of the rows take turns, with ``GPU_BYTES`` of work space; an index of cells (2
bytes a number, 8 more a row) is loaded once per process, and searched on the CPU where it does not
fit.
"""

import json
import logging
import math
import os
import uuid
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError
from pairwright.tasks.models.adaptive_batches import is_out_of_memory
from pairwright.tasks.models.check_packages import require_faiss
from pairwright.tasks.store.files import naming
from pairwright.tasks.store.pool import PLACE

log = logging.getLogger(__name__)
BLOCK_BYTES = 128 << 20
"""Bytes of the rows, in float32, compared at a time."""
GPU_LIMIT = 2048
"""Maximum results and probes on a GPU; larger searches use the CPU."""
GPU_BYTES = 256 << 20
"""Faiss's work space on a GPU; its default is 1.5 GiB."""
GPU_ERROR = 2.02 * 2.0**-11
"""Error of a GPU, which may round a factor to TF32, whose step is 2^-10."""
ROWS_AT_ONCE = 8192
SPARE = 8
"""Extra rows per query, so that few queries need a second search."""
CHUNK_BYTES = 4 << 20
"""Bytes of candidates' vectors, in float64, scored again at a time."""
SAMPLE = 256
"""Images with an exact search, to measure recall."""

Halves = NDArray[np.float16]
Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Neighbours = tuple[Integers, Singles]
"""Rows, nearest first, and their scores, per query."""


def count_devices(_config: Any = None) -> int | None:
    """Return the number of GPUs for Faiss, one process each; ``None``: the CPU."""
    require_faiss()
    import faiss

    if not hasattr(faiss, "StandardGpuResources"):
        return None
    return faiss.get_num_gpus() or None


@cache
def _gpu() -> Any:
    """Return Faiss's handle of this process's GPU, or ``None``."""
    import faiss

    if not count_devices():
        return None
    resources = cast("Any", faiss).StandardGpuResources()
    resources.setTempMemory(GPU_BYTES)
    return resources


def _gpu_number() -> int:
    return int(os.environ.get(PLACE, "0")) % (count_devices() or 1)


def rounding(width: int) -> float:
    """Return the error bound of a float32 inner product of unit vectors, summed in any order."""
    error = 1.01 * width * float(np.finfo(np.float32).eps)
    return error + GPU_ERROR if _gpu() else error


def top_k(
    matrix: Halves,
    rows: Integers,
    *,
    k: int,
    centres: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Neighbours:
    """Return each row's nearest other rows, nearest first, and their inner products.

    Both are ``(len(rows), min(k, N - 1))``. A row is never its own neighbour; its exact duplicates
    are. With ``centres``, only the first ``centres`` rows are searched, and a row may be its own
    centre.
    """
    count = centres or len(matrix)
    others = count if centres else count - 1
    step = max(1, block_bytes // (4 * matrix.shape[1]))

    def search_rows(pending: Integers, reach: int) -> Neighbours:
        queries = matrix[rows[pending]].astype(np.float32)
        return _compare(queries, matrix[:count], reach=reach, step=step)

    return refine_neighbours(
        matrix,
        rows,
        k=min(k, others),
        count=count,
        itself=bool(centres),
        search=search_rows,
    )


def _compare(queries: Singles, matrix: Halves, *, reach: int, step: int) -> Neighbours:
    """Return the ``reach`` rows of highest product in float32, ``step`` rows at a time."""
    import faiss

    best = faiss.ResultHeap(len(queries), reach, keep_max=True)
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step].astype(np.float32)
        scores, near = _search_block(queries, block, min(reach, len(block)))
        best.add_result(scores, near + start)
    best.finalize()
    return best.I, best.D


def _search_block(queries: Singles, block: Singles, count: int) -> tuple[Singles, Integers]:
    """Return the scores and the rows of the ``count`` nearest of a block."""
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT
    gpu = _gpu()
    if not gpu or count > GPU_LIMIT:
        return faiss.knn(queries, block, count, metric=metric)
    device = _gpu_number()
    return cast("Any", faiss).knn_gpu(gpu, queries, block, count, metric=metric, device=device)


def refine_neighbours(
    matrix: Halves,
    rows: Integers,
    *,
    k: int,
    count: int,
    itself: bool,
    search: Callable[[Integers, int], Neighbours],
) -> Neighbours:
    """Return each row's exact ``k`` nearest and products, from an approximate ``search``.

    Both are padded, with -1 and -inf. ``matrix`` is ``(N, d)`` of unit length up to rounding;
    ``rows`` are the queries, ``count`` the rows searched; ``itself``: a row may be its own
    neighbour. ``search``, given positions in ``rows`` and a number, returns that many rows of
    highest score and the falling scores, accurate to ``rounding``.
    """
    near, products = _no_neighbours(len(rows), k)
    pending = np.arange(len(rows))
    reach = min(count, k + 1 + SPARE)
    while len(pending) and k:
        candidates, scores = search(pending, reach)
        others = candidates if itself else _without_self(candidates, rows[pending])
        near[pending], products[pending] = rank_candidates(matrix, rows[pending], others, k=k)
        if reach == count:
            break
        # Rows not found score at most the lowest one's plus the error.
        bound = scores[:, -1] + rounding(matrix.shape[1])
        is_open = (candidates[:, -1] >= 0) & (products[pending, -1] <= bound)
        pending = pending[is_open]
        reach = min(count, 4 * reach)
    return near, products.astype(np.float32)


def _no_neighbours(count: int, k: int) -> tuple[Integers, Floats]:
    """Return results of ``count`` queries before any is found."""
    near = np.full((count, k), -1, dtype=np.int64)
    products = np.full((count, k), -np.inf, dtype=np.float64)
    return near, products


def _without_self(candidates: Integers, rows: Integers) -> Integers:
    """Return the rows' candidates, -1 in place of the row itself."""
    is_self = candidates == rows[:, None]
    return np.where(is_self, -1, candidates)


def rank_candidates(
    matrix: Halves,
    rows: Integers,
    candidates: Integers,
    *,
    k: int,
) -> tuple[Integers, Floats]:
    """Return each row's ``k`` nearest of its candidates (-1: none) and their exact products."""
    near, products = _no_neighbours(len(rows), k)
    count = candidates.shape[1]
    width = min(k, count)
    if not width:
        return near, products
    step = max(1, CHUNK_BYTES // (8 * matrix.shape[1] * count))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        block = candidates[part]
        exact = _find_products(matrix, rows[part], block)
        order = np.lexsort((block, -exact), axis=1)[:, :width]
        near[part, :width] = np.take_along_axis(block, order, axis=1)
        products[part, :width] = np.take_along_axis(exact, order, axis=1)
    return near, products


def _find_products(
    matrix: Halves,
    rows: Integers,
    candidates: Integers,
) -> Floats:
    """Return the exact products of rows with their candidates (-1: none, of product -inf)."""
    queries = matrix[rows, :, None].astype(np.float64)
    others = matrix[candidates].astype(np.float64)
    products = (others @ queries)[:, :, 0]
    products[candidates < 0] = -np.inf
    return products


def choose_cells(count: int) -> int:
    """Return the cells for so many images: the power of two nearest to four times the root."""
    exponent = round(math.log2(4 * math.sqrt(count)))
    return min(count, 1 << exponent)


def probes_of(cells: int, configured: int) -> int:
    """Return the number of cells per query: ``configured``; 0: one in 16, at least 16."""
    return min(cells, configured or max(16, cells // 16))


def search_cells(
    matrix: Halves,
    rows: Integers,
    *,
    index: Any,
    k: int,
    probes: int,
) -> Neighbours:
    """Return each row's ``k`` nearest in the cells of its nearest centres, and products.

    They are padded with -1 and -inf.
    """
    cells, _ = top_k(matrix, rows, k=probes, centres=index.nlist)

    def search_rows(pending: Integers, reach: int) -> Neighbours:
        on_gpu = _gpu() and max(reach, probes) <= GPU_LIMIT
        chosen = _to_gpu(index) if on_gpu else index
        chosen.nprobe = probes
        # On a GPU, Faiss copies the centre of each probed cell.
        step = max(1, GPU_BYTES // (8 * probes * matrix.shape[1]))
        scores: list[Singles] = []
        near: list[Integers] = []
        for start in range(0, len(pending), step):
            part = pending[start : start + step]
            queries = matrix[rows[part]].astype(np.float32)
            results = chosen.search_preassigned(queries, reach, cells[part], None)
            scores.append(results[0])
            near.append(results[1])
        return np.concatenate(near), np.concatenate(scores)

    return refine_neighbours(matrix, rows, k=k, count=len(matrix), itself=False, search=search_rows)


def open_neighbour_index(matrix: Halves, folder: Path) -> Any:
    """Map the index in the folder into memory; the first process makes it, others wait."""
    import faiss

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cells.faiss"

    def write_neighbour_index(new: Path) -> None:
        try:
            index = _make_index(matrix, choose_cells(len(matrix)))
            faiss.write_index(index, str(new))
        except RuntimeError as error:  # Faiss's error of an incomplete file
            raise StoreError(f"{path}: could not be written: {error}") from error

    _write_once(path, write_neighbour_index)
    return _read_index(path)


def _write_once(path: Path, write: Callable[[Path], object]) -> bool:
    """Write a file that does not exist yet, renamed into place; other processes wait.

    Return whether this process wrote it.
    """
    with FileLock(path.parent / "lock"):
        if path.exists():
            return False
        new = path.with_name(uuid.uuid4().hex)
        with naming(str(path), "written"):
            write(new)
            new.rename(path)
    return True


@lru_cache(maxsize=4)  # one for each space that is searched
def _read_index(path: Path) -> Any:
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)


@lru_cache(maxsize=4)
def _to_gpu(index: Any) -> Any:
    """Return the index on the GPU; where it does not fit, the one on the CPU."""
    import faiss

    try:
        return cast("Any", faiss).index_cpu_to_gpu(_gpu(), _gpu_number(), index)
    except RuntimeError as error:  # Faiss's error for cudaMalloc's
        if not is_out_of_memory(error):
            raise
        message = "out of GPU memory: an index of cells of %d images is searched on the CPU"
        log.warning(message, index.ntotal)
        return index


def _make_index(matrix: Halves, cells: int) -> Any:
    import faiss

    width = matrix.shape[1]
    centres = faiss.IndexFlatIP(width)
    centres.add(matrix[:cells].astype(np.float32))
    index = faiss.IndexIVFScalarQuantizer(
        centres,
        width,
        cells,
        faiss.ScalarQuantizer.QT_fp16,
        faiss.METRIC_INNER_PRODUCT,
    )
    index.by_residual = False
    index.is_trained = True  # nothing to train: vectors are stored uncompressed
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(matrix)))
        nearest, _ = top_k(matrix, rows, k=1, centres=cells)
        cell_of_rows = nearest.ravel()
        vectors = matrix[rows].astype(np.float32)
        index.add_core(
            len(rows),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(rows),
            faiss.swig_ptr(cell_of_rows),
        )
    return index


def find_recall(
    folder: Path,
    matrix: Halves,
    index: Any,
    *,
    k: int,
    probes: int,
    band: float,
) -> tuple[int, int, bool]:
    """Return ``measure_recall`` for the index in a folder, and whether this process measured it."""
    path = folder / f"recall-{probes}-{k}-{band}.json"

    def write_recall(new: Path) -> None:
        recall = measure_recall(matrix, index, k=k, probes=probes, band=band)
        new.write_text(json.dumps(recall))

    measured = _write_once(path, write_recall)
    hits, total = json.loads(path.read_text())
    return hits, total, measured


def measure_recall(
    matrix: Halves,
    index: Any,
    *,
    k: int,
    probes: int,
    band: float,
) -> tuple[int, int]:
    """Return how many of a sample's exact neighbours the index finds, and how many there are.

    Neighbours are the ``k`` nearest of at least ``band`` similarity. The sample is the images of
    the highest keys.
    """
    first = max(index.nlist, len(matrix) - SAMPLE)
    rows = np.arange(first, len(matrix))
    expected = _neighbours_in_band(matrix, rows, k=k, band=band)
    near, _ = search_cells(matrix, rows, index=index, k=k, probes=probes)
    hits = 0
    for neighbours, results in zip(expected, near.tolist(), strict=True):
        hits += len(neighbours.intersection(results))
    return hits, sum(map(len, expected))


def _neighbours_in_band(
    matrix: Halves,
    rows: Integers,
    *,
    k: int,
    band: float,
) -> list[set[int]]:
    """Return each row's exact ``k`` nearest of at least ``band`` similarity."""
    # In blocks: leave the GPU's memory to the index.
    near, products = top_k(np.asarray(matrix), rows, k=k)
    expected: list[set[int]] = []
    for neighbours, scores in zip(near, products, strict=True):
        in_band = neighbours[scores >= band]
        expected.append(set(in_band.tolist()))
    return expected
