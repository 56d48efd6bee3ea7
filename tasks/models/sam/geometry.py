"""Bring images and boxes into the square that SAM sees, and its masks back.

As the package's ``ResizeLongestSide``, ``preprocess`` and ``postprocess_masks``: the longer side fills the square, the
image lies at its top left, and what remains is grey. Pixels in, pixels out; needs PyTorch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import Box
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.sam.enlarge_masks import Patch, enlarge_masks, make_side

if TYPE_CHECKING:
    from torch import Tensor, device

Size = tuple[int, int]
"""Height and width."""
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
"""The package's, of levels from 0 to 255."""


class Fitted(NamedTuple):
    """Be an image as large as fits in the square."""

    pixels: NDArray[np.uint8]
    """``(h, w, 3)``; the longer side is the square's."""
    original: Size
    """The image's own."""


@dataclass(frozen=True, slots=True)
class Square:
    """Be the square that a model sees; can be sent to another process."""

    side: int
    """In pixels."""

    def size_of(self, original: Size) -> Size:
        """Return the size of an image in the square."""
        scale = self.side / max(original)
        return max(int(original[0] * scale + 0.5), 1), max(int(original[1] * scale + 0.5), 1)

    def fit(self, seen: Seen) -> Fitted:
        """Return an image resized, with antialiasing in integers: to a few roundings as Pillow does."""
        import torch
        from torch.nn.functional import interpolate

        original: Size = (seen.pixels.shape[0], seen.pixels.shape[1])
        if self.size_of(original) == original:
            return Fitted(np.ascontiguousarray(seen.pixels), original)
        pixels = torch.from_numpy(np.require(seen.pixels, requirements=["C", "W"]))[None].permute(0, 3, 1, 2)
        with torch.inference_mode():
            resized = interpolate(pixels, self.size_of(original), mode="bilinear", antialias=True)
        return Fitted(np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy()), original)

    def numbers(self, images: Sequence[Fitted], where: "device") -> "Tensor":
        """Return the ``(n, 3, side, side)`` floats that the encoder wants, on a device."""
        import torch

        mean, std = (torch.tensor(three, device=where).view(3, 1, 1) for three in (MEAN, STD))
        squares = torch.zeros(len(images), 3, self.side, self.side, device=where)
        for square, image in zip(squares, images, strict=True):
            height, width = image.pixels.shape[:2]
            pixels = torch.from_numpy(np.require(image.pixels, requirements=["C", "W"])).to(where)
            square[:, :height, :width] = (pixels.permute(2, 0, 1).float() - mean) / std
        return squares

    def boxes(self, boxes: Sequence[Box], original: Size) -> NDArray[np.float32]:
        """Return ``(n, 4)`` corners x0, y0, x1, y1 in the square of boxes in an image."""
        fitted = self.size_of(original)
        down, across = fitted[0] / original[0], fitted[1] / original[1]
        corners = np.array([(box.x0, box.y0, box.x1, box.y1) for box in boxes], dtype=np.float64).reshape(-1, 4)
        return (corners * (across, down, across, down)).astype(np.float32)

    def masks(self, logits: "Tensor", original: Size) -> Iterator[Patch]:
        """Yield each mask, of the image's own size, of ``(n, s, s)`` logits over the square."""
        height, width = self.size_of(original)
        across = make_side(logits, square=self.side, shown=width, pixels=original[1])
        down = make_side(logits, square=self.side, shown=height, pixels=original[0])
        return enlarge_masks(logits, across, down)
