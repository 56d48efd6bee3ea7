"""Masks: run lengths, measures, cut-out windows.

Run lengths have COCO's uncompressed form: column by column, starting with background. A mask of 12
million pixels has a few thousand runs, so measures are computed from runs. Reads and writes
nothing.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB


def encode_mask(array: NDArray[np.bool_]) -> Mask:
    """Return the run lengths of a mask ``(rows, columns)``; fastest in column-major order."""
    height, width = array.shape
    # Most masks fill a small part of the columns: only these are read.
    filled = np.flatnonzero(array.any(axis=0))
    first = int(filled[0]) if filled.size else 0
    last = int(filled[-1]) + 1 if filled.size else 0
    part = array[:, first:last].astype(bool, copy=False)
    flat = np.zeros(part.size + 2, dtype=bool)  # background before and after the filled columns
    flat[1:-1].reshape(part.shape[::-1])[...] = part.T
    ends = np.flatnonzero(flat[1:] != flat[:-1]) + first * height
    if not ends.size or ends[-1] != array.size:
        ends = np.append(ends, array.size)
    counts = np.diff(ends, prepend=0).tolist()
    return Mask(
        height=height,
        width=width,
        counts=tuple(counts),
    )


def _run_lengths(mask: Mask) -> NDArray[np.int64]:
    counts = np.asarray(mask.counts, dtype=np.int64)
    pixels = counts.sum()
    if (counts < 0).any() or pixels != mask.height * mask.width:
        size = f"{mask.height} x {mask.width}"
        raise ValidationError(f"runs of {pixels} pixels do not fill a mask of {size}")
    return counts


def decode_mask(mask: Mask) -> NDArray[np.bool_]:
    """Return the mask ``(rows, columns)`` of run lengths."""
    counts = _run_lengths(mask)
    values = np.arange(counts.size) % 2 == 1
    flat = np.repeat(values, counts)
    return flat.reshape((mask.height, mask.width), order="F")


Offsets = NDArray[np.int64]
Corners = tuple[int, int, int, int]  # pixels x0, y0, x1, y1, the last two exclusive


def box_of(array: NDArray[np.bool_]) -> Corners:
    """Return the smallest box around the pixels of a mask ``(rows, columns)`` that has some."""
    rows = np.flatnonzero(array.any(axis=1))
    columns = np.flatnonzero(array.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@dataclass(frozen=True)
class Runs:
    """Mask as runs of set pixels, counted down the columns."""

    height: int
    width: int
    starts: Offsets
    ends: Offsets  # exclusive; no run is empty

    @cached_property
    def area(self) -> int:
        """Return the number of set pixels."""
        return int((self.ends - self.starts).sum())

    @property
    def share(self) -> float:
        """Return the share of set pixels."""
        return self.area / max(self.height * self.width, 1)

    @cached_property
    def box(self) -> Corners:
        """Return the smallest box around the set pixels; zeros if there are none."""
        if not self.starts.size:
            return (0, 0, 0, 0)
        left, top = np.divmod(self.starts, self.height)
        right, bottom = np.divmod(self.ends - 1, self.height)
        x0 = int(left[0])
        x1 = int(right[-1]) + 1
        # A run over several columns covers the foot of one and the head of the next.
        if (left != right).any():
            return (x0, 0, x1, self.height)
        return (x0, int(top.min()), x1, int(bottom.max()) + 1)


def read_runs(mask: Mask) -> Runs:
    """Return the runs of an encoded mask."""
    counts = _run_lengths(mask)
    ends = np.cumsum(counts)[1::2]
    starts = ends - counts[1::2]
    return Runs(mask.height, mask.width, starts[ends > starts], ends[ends > starts])


def overlap_of(first: Runs, second: Runs) -> float:
    """Return the intersection over union of two masks of one size; 0 if both are empty."""
    left = max(first.box[0], second.box[0])
    top = max(first.box[1], second.box[1])
    right = min(first.box[2], second.box[2])
    bottom = min(first.box[3], second.box[3])
    shared = 0
    if left < right and top < bottom:
        window = (left, top, right, bottom)
        common = cut_mask(first, window) & cut_mask(second, window)
        shared = int(common.sum())
    return shared / max(first.area + second.area - shared, 1)


def cut_mask(runs: Runs, window: Corners) -> NDArray[np.bool_]:
    """Return the ``(h, w)`` pixels of a mask in a window, decoding only the window's columns."""
    x0, y0, x1, y1 = window
    first = x0 * runs.height
    size = (x1 - x0) * runs.height
    edges = np.stack([runs.starts, runs.ends], axis=1).ravel()
    edges = np.clip(edges - first, 0, size)
    lengths = np.diff(edges, prepend=0, append=size)
    values = np.arange(lengths.size) % 2 == 1
    columns = np.repeat(values, lengths).reshape((x1 - x0, runs.height))
    return np.ascontiguousarray(columns.T[y0:y1])


def encode_patch(pixels: RGB) -> bytes:
    """Encode ``(h, w, 3)`` pixels as PNG; the same pixels give the same bytes.

    Only runs of filtered bytes are compressed: for photographs, five times as fast as
    ``encode_png`` at about its size.
    """
    import cv2

    settings = [
        cv2.IMWRITE_PNG_COMPRESSION,
        1,
        cv2.IMWRITE_PNG_STRATEGY,
        cv2.IMWRITE_PNG_STRATEGY_RLE,
    ]
    bgr = np.ascontiguousarray(pixels[:, :, ::-1])
    encoded, data = cv2.imencode(".png", bgr, settings)
    if not encoded:
        height, width = pixels.shape[:2]
        raise ValueError(f"OpenCV cannot encode a patch of {width} x {height} pixels")
    return data.tobytes()
