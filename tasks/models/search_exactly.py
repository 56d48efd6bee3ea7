"""Score preselected rows exactly, widen float16 numbers and multiply pairs, in compiled loops; needs numba.

A product of two float16 numbers has 22 bits and is a multiple of 2^-48; of unit vectors, any partial sum stays below 4
and so fits into the 53 bits of a float64. So a score does not depend on the order of summation.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

WIDEN = np.float32(2.0**112)
"""A float16's bits, moved to the place of a float32's, are the number 2^-112 times as large."""
UP = 2.0**224
"""Both factors' at once."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile and keep it on disk; sums may be taken in any order."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        return cast("Function", njit(**options, cache=True)(function))
    except RuntimeError:  # no folder for it can be written: compile once per process
        return cast("Function", njit(**options)(function))


def widen(halves: NDArray[np.float16]) -> NDArray[np.float32]:
    """Return the same finite numbers in float32; five times as fast as NumPy."""
    singles = np.empty(halves.shape, dtype=np.float32)
    _widen(np.ascontiguousarray(halves).view(np.uint16), singles)
    return singles


@_compiled
def _widen(bits: NDArray[np.uint16], singles: NDArray[np.float32]) -> None:
    places = singles.view(np.uint32)
    for row in range(bits.shape[0]):
        for i in range(bits.shape[1]):
            half = np.uint32(bits[row, i])
            places[row, i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | (
                (half & np.uint32(0x8000)) << np.uint32(16)
            )
        for i in range(bits.shape[1]):
            singles[row, i] *= WIDEN


def multiply_pairs(
    rows: NDArray[np.float32], queries: NDArray[np.float32], *, of_row: NDArray[np.int64], of_query: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the inner products of pairs, given by their places in ``(N, D)`` rows and ``(Q, D)`` queries."""
    products = np.empty(len(of_row), dtype=np.float32)
    _multiply(rows, queries, of_row, of_query, products)
    return products


@_compiled
def _multiply(
    rows: NDArray[np.float32],
    queries: NDArray[np.float32],
    of_row: NDArray[np.int64],
    of_query: NDArray[np.int64],
    products: NDArray[np.float32],
) -> None:
    for number in range(len(products)):
        row, query, total = of_row[number], of_query[number], np.float32(0)
        for i in range(rows.shape[1]):
            total += rows[row, i] * queries[query, i]
        products[number] = total


def fill_nearest(
    matrix: NDArray[np.float16],
    rows: NDArray[np.int64],
    candidates: NDArray[np.int64],
    *,
    near: NDArray[np.int64],
    products: NDArray[np.float64],
) -> None:
    """Write each row's nearest candidates (-1: none), as many as ``near`` is wide, and their products.

    Ties are in the order of their rows. What is not filled stays.
    """
    _fill(matrix.view(np.uint16), rows, np.ascontiguousarray(candidates), near, products)


@_compiled
def _fill(
    bits: NDArray[np.uint16],
    rows: NDArray[np.int64],
    candidates: NDArray[np.int64],
    near: NDArray[np.int64],
    products: NDArray[np.float64],
) -> None:
    width, k = bits.shape[1], near.shape[1]
    single = np.empty(width, dtype=np.float32)
    place = single.view(np.uint32)
    query = np.empty(width, dtype=np.float64)
    for number in range(len(rows)):
        for i in range(width):
            half = np.uint32(bits[rows[number], i])
            place[i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
        for i in range(width):
            query[i] = np.float64(single[i]) * UP
        count = 0
        for candidate in range(candidates.shape[1]):
            row = candidates[number, candidate]
            if row < 0:
                continue
            for i in range(width):
                half = np.uint32(bits[row, i])
                place[i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
            total = 0.0
            for i in range(width):
                total += np.float64(single[i]) * query[i]
            # Candidates come nearly in order, so there is little to move.
            last = count if count < k else k - 1
            if count == k and (
                total < products[number, last] or (total == products[number, last] and row > near[number, last])
            ):
                continue
            while last > 0 and (
                total > products[number, last - 1]
                or (total == products[number, last - 1] and row < near[number, last - 1])
            ):
                near[number, last] = near[number, last - 1]
                products[number, last] = products[number, last - 1]
                last -= 1
            near[number, last] = row
            products[number, last] = total
            count = min(count + 1, k)
