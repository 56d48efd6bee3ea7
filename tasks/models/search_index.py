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
BLOCK_BYTES = 128 << 20  # bytes of the rows, in float32, compared at a time
GPU_LIMIT = 2048  # maximum results and probes on a GPU; larger searches use the CPU
GPU_BYTES = 256 << 20  # faiss's work space on a GPU; its default is 1.5 GiB
GPU_ERROR = 2.02 * 2.0**-11  # a GPU may round a factor to TF32, whose step is 2^-10
ROWS_AT_ONCE = 8192
SPARE = 8  # extra rows per query, so that few queries need a second search
CHUNK_BYTES = 4 << 20  # bytes of candidates' vectors, in float64, scored again at a time
SAMPLE = 256  # images with an exact search, to measure recall

Halves = NDArray[np.float16]
Integers = NDArray[np.int64]
Found = tuple[Integers, NDArray[np.float32]]


def count_devices(_config: Any = None) -> int | None:
    """Return the number of GPUs for Faiss, one process each; ``None``: the CPU."""
    require_faiss()
    import faiss

    return faiss.get_num_gpus() or None if hasattr(faiss, "StandardGpuResources") else None


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
    """Return the error bound of a float32 inner product of unit vectors, in any order of summation."""
    return 1.01 * width * float(np.finfo(np.float32).eps) + (GPU_ERROR if _gpu() else 0)


def top_k(
    matrix: Halves, rows: Integers, *, k: int, centres: int = 0, block_bytes: int = BLOCK_BYTES
) -> Found:
    """Return each row's nearest other rows, nearest first, and their inner products.

    Both are ``(len(rows), min(k, N - 1))``. A row is never its own neighbour; its exact duplicates
    are. With ``centres``, only the first ``centres`` rows are searched, and a row may be its own
    centre.
    """
    count = centres or len(matrix)
    wanted = min(k, count if centres else count - 1)
    step = max(1, block_bytes // (4 * matrix.shape[1]))

    def look(owed: Integers, reach: int) -> Found:
        return _compare(
            matrix[rows[owed]].astype(np.float32), matrix[:count], reach=reach, step=step
        )

    return settle(matrix, rows, k=wanted, count=count, itself=bool(centres), look=look)


def _compare(queries: NDArray[np.float32], matrix: Halves, *, reach: int, step: int) -> Found:
    """Return the ``reach`` rows of highest product in float32, ``step`` rows at a time."""
    import faiss

    best = faiss.ResultHeap(len(queries), reach, keep_max=True)
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step].astype(np.float32)
        wanted, kind = min(reach, len(block)), faiss.METRIC_INNER_PRODUCT
        if _gpu() and wanted <= GPU_LIMIT:
            scores, near = cast("Any", faiss).knn_gpu(
                _gpu(), queries, block, wanted, metric=kind, device=_gpu_number()
            )
        else:
            scores, near = faiss.knn(queries, block, wanted, metric=kind)
        best.add_result(scores, near + start)
    best.finalize()
    return best.I, best.D


def settle(
    matrix: Halves,
    rows: Integers,
    *,
    k: int,
    count: int,
    itself: bool,
    look: Callable[[Integers, int], Found],
) -> Found:
    """Return each row's exact ``k`` nearest and products, from the approximate ``look``; padded with -1 and -inf.

    ``matrix`` is ``(N, d)`` of unit length up to rounding; ``rows`` are the queries, ``count`` the
    rows searched; ``itself``: a row may be its own neighbour. ``look``, given positions in ``rows``
    and a number, returns that many rows of highest score and the falling scores, accurate to
    ``rounding``.
    """
    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    owed, reach = np.arange(len(rows)), min(count, k + 1 + SPARE)
    while len(owed) and k:
        found, scores = look(owed, reach)
        others = (found >= 0) if itself else (found >= 0) & (found != rows[owed, None])
        near[owed], products[owed] = rank(matrix, rows[owed], np.where(others, found, -1), k=k)
        # Rows not found score at most the lowest one's plus the error.
        unseen = (found[:, -1] >= 0) & (reach < count)
        owed = owed[unseen & (products[owed, -1] <= scores[:, -1] + rounding(matrix.shape[1]))]
        reach = min(count, 4 * reach)
    return near, products.astype(np.float32)


def rank(
    matrix: Halves, rows: Integers, candidates: Integers, *, k: int
) -> tuple[Integers, NDArray[np.float64]]:
    """Return each row's ``k`` nearest of its candidates (-1: none) and their exact products."""
    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    width = min(k, candidates.shape[1])
    step = max(1, CHUNK_BYTES // (8 * matrix.shape[1] * max(1, candidates.shape[1])))
    for start in range(0, len(rows) if width else 0, step):
        part = slice(start, start + step)
        some = candidates[part]
        exact = (matrix[some].astype(np.float64) @ matrix[rows[part], :, None].astype(np.float64))[
            :, :, 0
        ]
        exact[some < 0] = -np.inf
        order = np.lexsort((some, -exact), axis=1)[:, :width]
        near[part, :width] = np.take_along_axis(some, order, axis=1)
        products[part, :width] = np.take_along_axis(exact, order, axis=1)
    return near, products


def cells_of(count: int) -> int:
    """Return the number of cells for so many images: the power of two nearest to four times their root."""
    return min(count, 1 << round(math.log2(4 * math.sqrt(count))))


def probes_of(cells: int, asked: int) -> int:
    """Return the number of cells per query: ``asked``; 0: one in 16, at least 16."""
    return min(cells, asked or max(16, cells // 16))


def search_cells(matrix: Halves, rows: Integers, *, index: Any, k: int, probes: int) -> Found:
    """Return each row's ``k`` nearest in the cells of its nearest centres, and products; padded with -1 and -inf."""
    cells, _ = top_k(matrix, rows, k=probes, centres=index.nlist)

    def look(owed: Integers, reach: int) -> Found:
        chosen = _to_gpu(index) if _gpu() and max(reach, probes) <= GPU_LIMIT else index
        chosen.nprobe = probes
        # On a GPU, Faiss copies the centre of each probed cell.
        step = max(1, GPU_BYTES // (8 * probes * matrix.shape[1]))
        parts = (owed[start : start + step] for start in range(0, len(owed), step))
        queries = ((part, matrix[rows[part]].astype(np.float32)) for part in parts)
        found = [
            chosen.search_preassigned(vectors, reach, cells[part], None)
            for part, vectors in queries
        ]
        scores, near = (np.concatenate(column) for column in zip(*found, strict=True))
        return near, scores

    return settle(matrix, rows, k=k, count=len(matrix), itself=False, look=look)


def open_index(matrix: Halves, folder: Path) -> Any:
    """Map the index in the folder into memory; the first process makes it, others wait."""
    import faiss

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cells.faiss"

    def write(new: Path) -> None:
        try:
            faiss.write_index(_make_index(matrix, cells_of(len(matrix))), str(new))
        except RuntimeError as error:  # Faiss's error of an incomplete file
            raise StoreError(f"{path}: could not be written: {error}") from error

    _write_once(path, write)
    return _read_index(path)


def _write_once(path: Path, write: Callable[[Path], object]) -> bool:
    """Write a file that does not exist yet, renamed into place; return whether this process did. Others wait."""
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
    except RuntimeError as error:  # what Faiss makes of cudaMalloc's
        if not is_out_of_memory(error):
            raise
        log.warning(
            "out of GPU memory: an index of cells of %d images is searched on the CPU", index.ntotal
        )
        return index


def _make_index(matrix: Halves, cells: int) -> Any:
    import faiss

    width = matrix.shape[1]
    centres = faiss.IndexFlatIP(width)
    centres.add(matrix[:cells].astype(np.float32))
    kind = (faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index = faiss.IndexIVFScalarQuantizer(centres, width, cells, *kind)
    index.by_residual = False
    index.is_trained = True  # nothing to train: vectors are stored uncompressed
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(matrix)))
        home = top_k(matrix, rows, k=1, centres=cells)[0].ravel()
        vectors = matrix[rows].astype(np.float32)
        index.add_core(len(rows), *(faiss.swig_ptr(array) for array in (vectors, rows, home)))
    return index


def find_recall(
    folder: Path, matrix: Halves, index: Any, *, k: int, probes: int, band: float
) -> tuple[int, int, bool]:
    """Return the result of ``measure_recall`` for the index in a folder, and whether this process measured it."""
    file = folder / f"recall-{probes}-{k}-{band}.json"
    measured = _write_once(
        file,
        lambda new: new.write_text(
            json.dumps(measure_recall(matrix, index, k=k, probes=probes, band=band))
        ),
    )
    hits, total = json.loads(file.read_text())
    return hits, total, measured


def measure_recall(
    matrix: Halves, index: Any, *, k: int, probes: int, band: float
) -> tuple[int, int]:
    """Return how many of a sample's exact neighbours the index finds, and how many there are.

    Neighbours are the ``k`` nearest of at least ``band`` similarity. The sample is the images of
    the highest keys.
    """
    rows = np.arange(max(index.nlist, len(matrix) - SAMPLE), len(matrix))
    near, products = top_k(
        np.asarray(matrix), rows, k=k
    )  # in blocks: leave the GPU's memory to the index
    found, _ = search_cells(matrix, rows, index=index, k=k, probes=probes)
    wanted = [set(one[scores >= band].tolist()) for one, scores in zip(near, products, strict=True)]
    hits = sum(len(some & set(one)) for some, one in zip(wanted, found.tolist(), strict=True))
    return hits, sum(map(len, wanted))
