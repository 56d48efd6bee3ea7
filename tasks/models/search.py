"""Search a matrix of unit vectors exactly for the nearest ones by inner product.

Reads float16 vectors, in memory or mapped from disk; needs Faiss. The answer does not depend on threads, blocks or
on which queries are asked together: Faiss's float32 products only preselect, and the preselected are scored again in
float64, where sums of products of float16 values are exact. Ties go to the lower row.

Memory beside the matrix: one block in float32 (``BLOCK_BYTES``), the queries in float32, and 24 bytes per query and
preselected row.
"""

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 64 << 20
SPARE = 32
"""Rows preselected beyond those asked for, so that few queries need a second look."""


def top_k(
    matrix: NDArray[np.float16], rows: NDArray[np.int64], *, k: int, block_bytes: int = BLOCK_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each of the matrix's ``rows`` its nearest other rows, nearest first, and their inner products.

    Both are ``(len(rows), min(k, N - 1))``. A row is never its own neighbour; its exact duplicates are neighbours.
    """
    count = len(matrix)
    wanted = min(k, max(count - 1, 0))
    near = np.empty((len(rows), wanted), dtype=np.int64)
    products = np.empty((len(rows), wanted), dtype=np.float32)
    owed, reach = np.arange(len(rows)), min(count, wanted + 1 + SPARE)
    while len(owed) and wanted:
        found, scores = _preselect(matrix, rows[owed], reach=reach, block_rows=_block_rows(matrix, block_bytes))
        unsure: list[int] = []
        for place, candidates, lowest in zip(owed.tolist(), found, scores[:, -1], strict=True):
            others = candidates[candidates != rows[place]]
            near[place], exact = _nearest(matrix, rows[place], others=others, wanted=wanted)
            products[place] = exact
            # A row that was not preselected scores at most the lowest score plus Faiss's rounding.
            if reach < count and exact[-1] <= lowest + _rounding(matrix):
                unsure.append(place)
        owed, reach = np.array(unsure, dtype=np.int64), min(count, 2 * reach)
    return near, products


def _rounding(matrix: NDArray[np.float16]) -> float:
    """Return how far a float32 inner product of two rows of length 1 can be off, in any order of summation."""
    return 1.01 * matrix.shape[1] * float(np.finfo(np.float32).eps)


def _block_rows(matrix: NDArray[np.float16], block_bytes: int) -> int:
    return max(1, block_bytes // (4 * matrix.shape[1]))


def _preselect(
    matrix: NDArray[np.float16], rows: NDArray[np.int64], *, reach: int, block_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ``reach`` rows of highest float32 product, and the products, falling."""
    import faiss  # heavy: only workers load it

    queries = matrix[rows].astype(np.float32)
    best = np.full((len(rows), reach), -np.inf, dtype=np.float32)
    found = np.full((len(rows), reach), -1, dtype=np.int64)
    for start in range(0, len(matrix), block_rows):
        block = np.ascontiguousarray(matrix[start : start + block_rows], dtype=np.float32)
        scores, places = faiss.knn(queries, block, min(reach, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        both = np.concatenate([best, scores], axis=1)
        order = np.argsort(-both, axis=1, kind="stable")[:, :reach]
        best = np.take_along_axis(both, order, axis=1)
        found = np.take_along_axis(np.concatenate([found, places + start], axis=1), order, axis=1)
    return found, best


def _nearest(
    matrix: NDArray[np.float16], row: np.int64, *, others: NDArray[np.int64], wanted: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Score candidates exactly and return the ``wanted`` nearest, ties in the order of their rows.

    A product of two float16 numbers has 22 bits and is a multiple of 2^-48; of unit vectors, any partial sum stays
    below 4 and so fits into the 53 bits of a float64.
    """
    exact = matrix[others].astype(np.float64) @ matrix[row].astype(np.float64)
    order = np.lexsort((others, -exact))[:wanted]
    return others[order], exact[order]
