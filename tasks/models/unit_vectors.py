"""Turn what an encoder gives into what is stored of it: a unit vector in 16 bits, and its length before.

Reads and writes nothing; needs NumPy.
"""

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError


def to_unit(vector: NDArray[np.float32], whose: str) -> tuple[tuple[float, ...], float]:
    """Return the unit vector as float16 numbers, and its length as a float32; the zero vector stays what it is.

    Args:
        vector: ``(dimension,)``.
        whose: the model and what it looked at, for the message.
    """
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"{whose}: gave a vector that is not finite")
    unit = (vector / norm if norm > 0 else vector).astype(np.float16)
    return tuple(unit.tolist()), float(np.float32(norm))
