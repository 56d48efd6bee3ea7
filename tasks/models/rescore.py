"""Score what a search has found again, exactly, and know when it has found enough.

A product of two float16 numbers has 22 bits and is a multiple of 2^-48; of unit vectors, any partial sum stays below 4
and so fits into the 53 bits of a float64. So scores depend on no order of summation, and neighbours and ties on neither
threads, machine nor which queries are asked together. Ties go to the lower row.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SPARE = 8
"""Rows asked for beyond those wanted, so that few queries need a second look."""
CHUNK_BYTES = 4 << 20
"""Bytes of the candidates' vectors, in float64, that are scored at a time."""

Halves = NDArray[np.float16]
Integers = NDArray[np.int64]
Near = tuple[Integers, NDArray[np.float64]]


def settle(
    matrix: Halves,
    rows: Integers,
    *,
    k: int,
    count: int,
    itself: bool,
    error: float,
    look: Callable[[Integers, int], tuple[Integers, NDArray[np.float32]]],
) -> Near:
    """Return each row's ``k`` nearest and their products, from what ``look`` finds; -1 and -inf where there are fewer.

    Args:
        matrix: ``(N, d)`` vectors of length 1, or a little longer by rounding.
        rows: the queries.
        k: neighbours wanted.
        count: rows that are searched; an answer that long leaves none unseen.
        itself: whether a row may be its own neighbour.
        error: how far a score of ``look`` can be off.
        look: given places in ``rows`` and a number, returns that many rows of highest score, and the falling scores.
    """
    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    owed, reach = np.arange(len(rows)), min(count, k + 1 + SPARE)
    while len(owed) and k:
        found, scores = look(owed, reach)
        others = (found >= 0) if itself else (found >= 0) & (found != rows[owed, None])
        near[owed], products[owed] = rank(matrix, rows[owed], np.where(others, found, -1), k=k)
        # A row that was not found has a score of at most the lowest one's, and is off by at most the error.
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


def rounding(width: int) -> float:
    """Return how far a float32 inner product of two rows of length 1 can be off, in any order of summation."""
    return 1.01 * width * float(np.finfo(np.float32).eps)
