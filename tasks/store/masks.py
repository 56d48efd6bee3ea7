"""Turn masks into run lengths and back: COCO's uncompressed form, column by column, starting with background.

Reads and writes nothing.
"""

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ValidationError
from schemas.scene import Mask


def encode_mask(array: NDArray[np.bool_]) -> Mask:
    """Return the run lengths of a mask ``(rows, columns)``."""
    height, width = array.shape
    flat = np.concatenate([[False], array.astype(bool).ravel(order="F")])
    starts = np.flatnonzero(flat[1:] != flat[:-1])
    counts = np.diff(np.concatenate([[0], starts, [flat.size - 1]]))
    return Mask(height=height, width=width, counts=tuple(int(count) for count in counts))


def decode_mask(mask: Mask) -> NDArray[np.bool_]:
    """Return the mask ``(rows, columns)`` of run lengths."""
    counts = np.asarray(mask.counts, dtype=np.int64)
    if (counts < 0).any() or counts.sum() != mask.height * mask.width:
        raise ValidationError(f"runs of {counts.sum()} pixels do not fill a mask of {mask.height} x {mask.width}")
    values = np.arange(counts.size) % 2 == 1
    return np.repeat(values, counts).reshape((mask.height, mask.width), order="F")
