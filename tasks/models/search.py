"""Search a matrix of unit vectors exactly for the nearest ones by inner product.

Reads float16 vectors, in memory or mapped from disk. The answer does not depend on the machine, threads, blocks or on
which queries are asked together: products of lower precision only preselect (``search_scan``), and every row that
their error leaves a chance is scored again in float64, where sums of products of float16 values are exact. Ties go to
the lower row.

Memory beside the matrix: one block, its products and those of interest (``BLOCK_BYTES`` and, at 1,024 numbers per
vector, five times as much), the queries, and 12 bytes per query and preselected row.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.search_scan import BLOCK_BYTES, preselect

SPARE = 16
"""Rows preselected beyond those asked for, so that few queries need a second look."""

Near = tuple[NDArray[np.int64], NDArray[np.float64]]
Preselected = tuple[NDArray[np.int64], NDArray[np.float32], float]


def top_k(
    matrix: NDArray[np.float16],
    rows: NDArray[np.int64],
    *,
    k: int,
    among: NDArray[np.int64] | None = None,
    itself: bool = False,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return for each of the matrix's ``rows`` its nearest other rows, nearest first, and their inner products.

    Both are ``(len(rows), min(k, N - 1))``. A row is never its own neighbour; its exact duplicates are neighbours.
    With ``itself``, a row is found like any other. ``among`` says which rows are searched, each once; the results are
    as wide as if all of them were others, and where a row itself was among them they end in -1 and -inf.
    """
    count = len(matrix) if among is None else len(among)

    def look(owed: NDArray[np.int64], reach: int) -> Preselected:
        return preselect(matrix, owed, among=among, reach=min(count, reach), block_bytes=block_bytes)

    wanted = min(k, count if itself or among is not None else max(count - 1, 0))
    near, products = settle(matrix, rows, k=wanted, most=count, itself=itself, look=look)
    return near, products.astype(np.float32)


def settle(
    matrix: NDArray[np.float16],
    rows: NDArray[np.int64],
    *,
    k: int,
    most: int,
    itself: bool,
    look: Callable[[NDArray[np.int64], int], Preselected],
) -> Near:
    """Ask ``look`` for the rows of highest product, further and further down, until the ``k`` nearest are sure.

    Where there are fewer, the rest is -1 and -inf. An answer of ``most`` rows leaves none unseen.
    """
    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    owed, reach = np.arange(len(rows)), k + 1 + SPARE
    while len(owed) and k:
        found, scores, error = look(rows[owed], reach)
        others = (found >= 0) if itself else (found >= 0) & (found != rows[owed, None])
        near[owed], products[owed] = rank(matrix, rows[owed], _chances(found, scores, others, k=k, error=error), k=k)
        # A row that was not preselected has a product of at most the lowest one's, and is off by at most the error.
        unseen = (found[:, -1] >= 0) & (found.shape[1] < most)
        owed = owed[unseen & (products[owed, -1] <= scores[:, -1] + error)]
        reach *= 4
    return near, products


def _chances(
    found: NDArray[np.int64], scores: NDArray[np.float32], others: NDArray[np.bool_], *, k: int, error: float
) -> NDArray[np.int64]:
    """Blank (-1) the rows that ``k`` others are certainly nearer than: two errors below the k-th product."""
    place = np.cumsum(others, axis=1)
    kth = np.max(np.where(others & (place >= k), scores, -np.inf), axis=1, keepdims=True, initial=-np.inf)
    return np.where(others & (scores >= kth - 2 * error), found, -1)


def rank(matrix: NDArray[np.float16], rows: NDArray[np.int64], candidates: NDArray[np.int64], *, k: int) -> Near:
    """Score each row's candidates exactly (-1: none) and return the ``k`` nearest, ties in the order of their rows."""
    from pairwright.tasks.models.search_exactly import fill_nearest  # heavy: needs numba

    near = np.full((len(rows), k), -1, dtype=np.int64)
    products = np.full((len(rows), k), -np.inf, dtype=np.float64)
    if k:
        fill_nearest(matrix, rows, candidates, near=near, products=products)
    return near, products
