"""Score preselected rows exactly, in one compiled loop; needs numba.

A product of two float16 numbers has 22 bits and is a multiple of 2^-48; of unit vectors, any partial sum stays below 4
and so fits into the 53 bits of a float64. So a score does not depend on the order of summation.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

UP = 2.0**224
"""Two factors of 2^-112, which a float16's bits lose in the place of a float32's, are put back at once."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile and keep it on disk; sums may be taken in any order."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    try:
        return cast("Function", njit(**options, cache=True)(function))
    except RuntimeError:  # no folder for it can be written: compile once per process
        return cast("Function", njit(**options)(function))


def score(
    matrix: NDArray[np.float16], rows: NDArray[np.int64], *, others: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the inner product of each of ``rows`` with its ``others``, which end at ``ends``."""
    scores = np.empty(len(others), dtype=np.float64)
    _score(matrix.view(np.uint16), rows, others, ends, scores)
    return scores


@_compiled
def _score(
    bits: NDArray[np.uint16],
    rows: NDArray[np.int64],
    others: NDArray[np.int64],
    ends: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None:
    width = bits.shape[1]
    single = np.empty(width, dtype=np.float32)
    place = single.view(np.uint32)
    query = np.empty(width, dtype=np.float64)
    start = 0
    for number in range(len(rows)):
        for i in range(width):
            half = np.uint32(bits[rows[number], i])
            place[i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
        for i in range(width):
            query[i] = np.float64(single[i]) * UP
        for candidate in range(start, ends[number]):
            row = others[candidate]
            for i in range(width):
                half = np.uint32(bits[row, i])
                place[i] = ((half & np.uint32(0x7FFF)) << np.uint32(13)) | ((half & np.uint32(0x8000)) << np.uint32(16))
            total = 0.0
            for i in range(width):
                total += np.float64(single[i]) * query[i]
            scores[candidate] = total
        start = ends[number]
