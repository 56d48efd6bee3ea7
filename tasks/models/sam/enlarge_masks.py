"""Bring SAM's logits to the size of the image, only where a mask can be. Needs PyTorch.

The package enlarges them to the model's square, cuts off the padding, and resizes what is left to the image, both
times bilinearly. All that is linear, and the same along each side: it is one matrix per side (ours), of which a mask
needs the rows that see a positive logit. Masks are a few roundings from the package's, at a fraction of the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


class Patch(NamedTuple):
    """Be the part of a mask outside which nothing is set."""

    left: int
    """In pixels of the image."""
    top: int
    mask: "Tensor"
    """``(width, height)`` bools: run lengths go down the columns."""


@dataclass(frozen=True, slots=True)
class Side:
    """Say what the pixels along one side of an image are made of."""

    weights: "Tensor"
    """``(pixels, logits)``."""
    first: NDArray[np.int64]
    """Per pixel, the first logit that it sees."""
    last: NDArray[np.int64]

    def window(self, positive: NDArray[np.bool_]) -> tuple[slice, slice]:
        """Return the pixels that see a logit in the range of those that are positive, and the logits these see."""
        (found,) = positive.nonzero()
        start = int(np.searchsorted(self.last, found[0]))
        stop = int(np.searchsorted(self.first, found[-1], side="right"))
        if start >= stop:  # the padding alone
            return slice(0, 0), slice(0, 0)
        return slice(start, stop), slice(int(self.first[start]), int(self.last[stop - 1]) + 1)


def make_side(like: "Tensor", *, square: int, shown: int, pixels: int) -> Side:
    """Return how the logits along one side become pixels.

    Args:
        like: logits ``(n, s, s)``.
        square: side of the square that they cover.
        shown: how much of it is image.
        pixels: the image's own size.
    """
    import torch
    from torch.nn.functional import interpolate

    single = torch.eye(like.shape[-1], device=like.device)[None]
    whole = interpolate(single, square, mode="linear", align_corners=False)
    weights = interpolate(whole[..., :shown], pixels, mode="linear", align_corners=False)[0].T
    seen = (weights > 0).cpu().numpy()
    return Side(weights, seen.argmax(axis=1), seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1))


def enlarge_masks(logits: "Tensor", across: Side, down: Side) -> Iterator[Patch]:
    """Yield each mask of ``(n, s, s)`` logits; beside it, one mask's pixels are held as floats."""
    positive = logits > 0
    columns, rows = positive.any(dim=1).cpu().numpy(), positive.any(dim=2).cpu().numpy()
    for plane, in_columns, in_rows in zip(logits.float(), columns, rows, strict=True):
        if not in_rows.any():
            yield Patch(0, 0, positive[0, :0, :0])
            continue
        (x, over), (y, under) = across.window(in_columns), down.window(in_rows)
        part = across.weights[x, over] @ plane[under, over].T @ down.weights[y, under].T
        yield Patch(x.start, y.start, part > 0)
