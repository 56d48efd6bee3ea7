"""Turn masks into run lengths and back: COCO's uncompressed form, column by column, starting with background.

Reads and writes nothing.
"""

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask


def encode_mask(array: NDArray[np.bool_]) -> Mask:
    """Return the run lengths of a mask ``(rows, columns)``; one that lies in memory by columns is read fastest."""
    height, width = array.shape
    first, last = _columns(array)
    part = array[:, first:last].astype(bool, copy=False)
    flat = np.zeros(part.size + 2, dtype=bool)  # background around the columns that hold something
    flat[1:-1].reshape(part.shape[::-1])[...] = part.T
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + first * height
    ends = changes if changes.size and changes[-1] == array.size else np.append(changes, array.size)
    return Mask(height=height, width=width, counts=tuple(np.diff(ends, prepend=0).tolist()))


def _columns(array: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the first column that holds something, and the one after the last: most masks fill a small part."""
    filled = np.flatnonzero(array.any(axis=0))
    return (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)


def run_lengths(mask: Mask) -> NDArray[np.int64]:
    """Return the run lengths of a mask, the first of background.

    Raises:
        ValidationError: they do not fill it.
    """
    counts = np.asarray(mask.counts, dtype=np.int64)
    if (counts < 0).any() or counts.sum() != mask.height * mask.width:
        raise ValidationError(f"runs of {counts.sum()} pixels do not fill a mask of {mask.height} x {mask.width}")
    return counts


def decode_mask(mask: Mask) -> NDArray[np.bool_]:
    """Return the mask ``(rows, columns)`` of run lengths."""
    counts = run_lengths(mask)
    values = np.arange(counts.size) % 2 == 1
    return np.repeat(values, counts).reshape((mask.height, mask.width), order="F")
