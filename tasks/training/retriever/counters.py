"""Draw random numbers that depend on what they are for, and not on what was drawn before.

Reads and writes nothing. A number is that of a seed, a step, a row and a use; there is no state to keep. So a resumed
run, and one on another number of devices, draws for a row what the first would have drawn.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import make_key

Use = Literal["candidates", "negatives"]
STREAMS: dict[Use, int] = {"candidates": 1, "negatives": 2}
Numbers = NDArray[np.uint64]


def marks_of(keys: Iterable[str]) -> Numbers:
    """Return 64 bits that stand for each key, whatever the key looks like."""
    return np.array([int(make_key("mark", key)[:16], 16) for key in keys], dtype=np.uint64)


def draw_bits(marks: Numbers, count: int, *, seed: int, step: int, use: Use) -> Numbers:
    """Return ``(B, count)`` random 64-bit numbers; the first ones are the same however many are asked for.

    Args:
        marks: ``(B,)``, of the rows that they are for.
        count: how many each row gets.
        seed: of the run.
        step: which time it is that the row needs some.
        use: what for.
    """
    rows = [np.random.Philox(key=[mark, seed], counter=[0, 0, step, STREAMS[use]]) for mark in marks.tolist()]
    return np.stack([row.random_raw(count) for row in rows]) if rows else np.empty((0, count), dtype=np.uint64)


def draw_shares(marks: Numbers, count: int, *, seed: int, step: int, use: Use) -> NDArray[np.float64]:
    """Return ``(B, count)`` random numbers from 0 to 1, the latter exclusive, in steps of 2^-52."""
    bits = draw_bits(marks, count, seed=seed, step=step, use=use)
    return (bits >> np.uint64(12)).astype(np.float64) * np.float64(2.0**-52)
