"""How the clustering kernel is compiled: options, the cache on disk, and the numbers that its parts share.

Needs numba; imported only when sets are clustered. Each function is compiled on its own and again inside each of its
callers: a shallow tree of functions that take few arrays and make no views compiles, and runs, fastest.
"""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

LANES = 8  # doubles in the widest vector register: rows of scratch arrays are padded to whole ones
EPSILON = 2.220446049250313e-16
TINY = 1e-300

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_SUM: dict[str, Any] = {**_INNER, "fastmath": {"contract", "reassoc", "nsz"}}


def compiled(function: Function) -> Function:
    """Compile for the use of other compiled functions; Python cannot call it any more."""
    return cast("Function", njit(**_INNER)(function))


def compiled_sum(function: Function) -> Function:
    """Compile likewise, free to add numbers in any order, as vectors do; NaN and infinity stay what they are."""
    return cast("Function", njit(**_SUM)(function))


def row_numbers(start: int, stop: int) -> list[Any]:
    """Number the rows of a scratch array; a plain int in a call would be a type of its own, and compiled again."""
    return list(np.arange(start, stop))


def compiled_entry(*sources: str) -> Callable[[Function], Function]:
    """Compile what Python calls, and keep it on disk; ``sources`` are the other files that it is made from.

    Numba's cache lies beside the source or in the user's cache folder and notices changes in the function's own file
    only, so the name it is filed under gets a checksum of the others.
    """
    folder = Path(__file__).parent
    stamp = zlib.crc32(b"".join((folder / name).read_bytes() for name in (Path(__file__).name, *sources)))

    def compile_it(function: Function) -> Function:
        function.__qualname__ += f"_{stamp:08x}"
        try:
            return cast("Function", njit(**_OPTIONS, cache=True)(function))
        except RuntimeError:  # neither folder can be written: compile once per process
            return cast("Function", njit(**_OPTIONS)(function))

    return compile_it


@compiled
def padded(n: int) -> int:
    """Round up to whole vectors."""
    return (n + LANES - 1) & -LANES


@compiled_sum
def inner(rows: Floats, a: int, b: int, n: int) -> float:
    """Return the inner product of two rows, of ``n`` numbers each."""
    total = 0.0
    for i in range(n):
        total += rows[a, i] * rows[b, i]
    return total
