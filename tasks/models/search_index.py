"""Nearest neighbours by inner product in a matrix of unit vectors, with Faiss on a CPU or a GPU.

Faiss's results, and a margin, are scored again exactly: products of float16 numbers are multiples of 2^-48, and their
sums for unit vectors fit into a float64. So results depend neither on threads, machine nor batching. Ties go to the
lower row.

``top_k`` compares all rows, a block at a time. ``search_cells`` searches an ``IndexIVFScalarQuantizer`` whose centres
are the images of the lowest keys (hashes, so a fair sample): nothing is trained, and an index is a function of the
images. It needs two to four times the probes of k-means' centres for the same recall.

A GPU loads the data once per process: 2 bytes a number (twice that while copying), in an index of cells 8 more a row,
and ``GPU_BYTES`` of work space. Where that does not fit, blocks of the rows take turns on the GPU, and an index of
cells is searched on the CPU.
"""

import json
import logging
import math
import os
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError
from pairwright.tasks.models.batches import is_out_of_memory
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
Near = tuple[Integers, NDArray[np.float64]]


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


def _error(width: int) -> float:
    return rounding(width) + (GPU_ERROR if _gpu() else 0)


def rounding(width: int) -> float:
    """Return the error bound of a float32 inner product of unit vectors, in any order of summation."""
    return 1.01 * width * float(np.finfo(np.float32).eps)


def top_k(matrix: Halves, rows: Integers, *, k: int, centres: int = 0, block_bytes: int = BLOCK_BYTES) -> Found:
    """Return each row's nearest other rows, nearest first, and their inner products.

    Both are ``(len(rows), min(k, N - 1))``. A row is never its own neighbour; its exact duplicates are. With
    ``centres``, only the first ``centres`` rows are searched, and a row may be its own centre. A matrix mapped from a
    file stays on the GPU.
    """
    count = centres or len(matrix)
    wanted = min(k, count if centres else count - 1)
    step = max(1, block_bytes // (4 * matrix.shape[1]))

    def look(owed: Integers, reach: int) -> Found:
        return _compare(matrix[rows[owed]].astype(np.float32), matrix[:count], reach=reach, step=step)

    error = _error(matrix.shape[1])
    near, products = settle(matrix, rows, k=wanted, count=count, itself=bool(centres), error=error, look=look)
    return near, products.astype(np.float32)


def _compare(queries: NDArray[np.float32], matrix: Halves, *, reach: int, step: int) -> Found:
    """Return the ``reach`` rows of highest product in float32, ``step`` rows at a time unless on the GPU."""
    import faiss

    file = getattr(matrix, "filename", "")  # what np.memmap has
    if file and _gpu() and reach <= GPU_LIMIT and (held := _copy_to_gpu(str(file), len(matrix))):
        scores, near = held.search(queries, reach)
        return near, scores
    best = faiss.ResultHeap(len(queries), reach, keep_max=True)
    for start in range(0, len(matrix), step):
        block = matrix[start : start + step].astype(np.float32)
        wanted, kind = min(reach, len(block)), faiss.METRIC_INNER_PRODUCT
        if _gpu() and wanted <= GPU_LIMIT:
            scores, near = cast("Any", faiss).knn_gpu(_gpu(), queries, block, wanted, metric=kind, device=_gpu_number())
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
    error: float,
    look: Callable[[Integers, int], Found],
) -> Near:
    """Return each row's exact ``k`` nearest and products, from the approximate ``look``; padded with -1 and -inf.

    ``matrix`` is ``(N, d)`` of unit length up to rounding; ``rows`` are the queries, ``count`` the rows searched;
    ``itself``: a row may be its own neighbour. ``look``, given positions in ``rows`` and a number, returns that many
    rows of highest score and the falling scores, accurate to ``error``.
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
        owed = owed[unseen & (products[owed, -1] <= scores[:, -1] + error)]
        reach = min(count, 4 * reach)
    return near, products


def rank(matrix: Halves, rows: Integers, candidates: Integers, *, k: int) -> Near:
    """Return each row's ``k`` nearest of its candidates (-1: none) and their exact products."""
    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    width = min(k, candidates.shape[1])
    step = max(1, CHUNK_BYTES // (8 * matrix.shape[1] * max(1, candidates.shape[1])))
    for start in range(0, len(rows) if width else 0, step):
        part = slice(start, start + step)
        some = candidates[part]
        exact = (matrix[some].astype(np.float64) @ matrix[rows[part], :, None].astype(np.float64))[:, :, 0]
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
        on_gpu = _gpu() and max(reach, probes) <= GPU_LIMIT
        chosen = (_to_gpu(index) if on_gpu else None) or index
        chosen.nprobe = probes
        # On a GPU, Faiss copies the centre of each probed cell.
        step = max(1, GPU_BYTES // (8 * probes * matrix.shape[1])) if on_gpu else len(owed)
        parts = (owed[start : start + step] for start in range(0, len(owed), step))
        found = [
            chosen.search_preassigned(matrix[rows[part]].astype(np.float32), reach, cells[part], None) for part in parts
        ]
        scores, near = (np.concatenate(column) for column in zip(*found, strict=True))
        return near, scores

    error = _error(matrix.shape[1])
    near, products = settle(matrix, rows, k=k, count=len(matrix), itself=False, error=error, look=look)
    return near, products.astype(np.float32)


def open_index(matrix: Halves, folder: Path) -> Any:
    """Map the index in the folder into memory; the first process makes it, others wait."""
    import faiss

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cells.faiss"
    with FileLock(folder / "lock"):
        if not path.exists():
            new = folder / uuid.uuid4().hex
            with naming(str(path), "written"):
                try:
                    faiss.write_index(_make_index(matrix, cells_of(len(matrix))), str(new))
                except RuntimeError as error:  # Faiss's error of an incomplete file
                    raise StoreError(f"{path}: could not be written: {error}") from error
                new.rename(path)
    return _read_index(path)


@lru_cache(maxsize=4)  # one for each space that is searched
def _read_index(path: Path) -> Any:
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)


@lru_cache(maxsize=4)
def _to_gpu(index: Any) -> Any:
    """Return the index on the GPU; ``None`` where it does not fit."""
    import faiss

    with _if_it_fits(f"an index of cells of {index.ntotal:,} images is searched on the CPU"):
        return cast("Any", faiss).index_cpu_to_gpu(_gpu(), _gpu_number(), index)
    return None


@lru_cache(maxsize=8)  # the images and the centres of each space
def _copy_to_gpu(file: str, count: int) -> Any:
    """Return the first rows of a file's matrix on the GPU, in float16; ``None`` where they do not fit."""
    import faiss

    matrix, gpu = np.load(file, mmap_mode="r"), cast("Any", faiss)
    with _if_it_fits(f"the vectors of {count:,} images are compared in blocks"):
        config = gpu.GpuIndexFlatConfig()
        config.device, config.useFloat16 = _gpu_number(), True
        held = gpu.GpuIndexFlatIP(_gpu(), matrix.shape[1], config)
        for start in range(0, count, ROWS_AT_ONCE):
            held.add(matrix[start : min(start + ROWS_AT_ONCE, count)].astype(np.float32))
        return held
    return None


@contextmanager
def _if_it_fits(otherwise: str) -> Generator[None]:
    """Log the fallback where the GPU runs out of memory."""
    try:
        yield
    except RuntimeError as error:  # what Faiss makes of cudaMalloc's
        if not is_out_of_memory(error):
            raise
        log.warning("out of GPU memory: %s", otherwise)


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


def find_recall(folder: Path, matrix: Halves, index: Any, *, k: int, probes: int, band: float) -> tuple[int, int, bool]:
    """Return the result of ``measure_recall`` for the index in a folder, and whether this process measured it."""
    file = folder / f"recall-{probes}-{k}-{band}.json"
    with FileLock(folder / "lock"):
        if file.exists():
            hits, total = json.loads(file.read_text())
            return hits, total, False
        hits, total = measure_recall(matrix, index, k=k, probes=probes, band=band)
        new = folder / uuid.uuid4().hex
        with naming(str(file), "written"):
            new.write_text(json.dumps([hits, total]))
            new.rename(file)
    return hits, total, True


def measure_recall(matrix: Halves, index: Any, *, k: int, probes: int, band: float) -> tuple[int, int]:
    """Return how many of a sample's exact neighbours the index finds, and how many there are.

    Neighbours are the ``k`` nearest of at least ``band`` similarity. The sample is the images of the highest keys.
    """
    rows = np.arange(max(index.nlist, len(matrix) - SAMPLE), len(matrix))
    near, products = top_k(np.asarray(matrix), rows, k=k)  # in blocks: leave the GPU's memory to the index
    found, _ = search_cells(matrix, rows, index=index, k=k, probes=probes)
    wanted = [set(one[scores >= band].tolist()) for one, scores in zip(near, products, strict=True)]
    hits = sum(len(some & set(one)) for some, one in zip(wanted, found.tolist(), strict=True))
    return hits, sum(map(len, wanted))
