"""Resize, crop and scale images as an encoder's library does, in a fraction of the time.

Returns a ``uint8`` crop, converted to floats on the encoder's device. PyTorch and Pillow both
resize with antialiasing in integers: crops differ from the libraries' by a few roundings, 0.003 of
255 levels on average. Of images with an extreme aspect only the crop is resized: 16 x 200,000
pixels would become gigabytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

Pixels = NDArray[np.uint8]
Size = tuple[int, int]
"""Height and width."""
Resize = Literal["shortest", "exact"]
Interpolation = Literal["bilinear", "bicubic"]
WASTE = 4
"""Limit of resized pixels, in crops, above which Pillow resizes the crop alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """Transform of one library; called with an image, it returns the crop."""

    resize: Resize
    """``shortest``: the shorter side becomes ``size[0]``, the other is rounded down, as in
    torchvision; ``exact``: ``size``. """
    size: Size
    crop: Size
    """Centre crop within ``size``."""
    interpolation: Interpolation = "bicubic"
    offset: Literal["round", "floor"] = "round"
    """Rounding of half an odd margin: to even in torchvision, down in transformers."""
    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, pixels: Pixels) -> Pixels:
        """Return the crop, ``(*crop, 3)``, of an ``(h, w, 3)`` image."""
        height, width = pixels.shape[:2]
        size = self._resized_size(height, width)
        rows, columns = self.crop
        top = self._start(size[0] - rows)
        left = self._start(size[1] - columns)
        if size[0] * size[1] > WASTE * rows * columns:
            return self._resize_crop(pixels, size, (top, left))
        resized = pixels
        if size != (height, width):
            resized = _resize(pixels, size, self.interpolation)
        crop = resized[top : top + rows, left : left + columns]
        return np.ascontiguousarray(crop)

    def _resized_size(self, height: int, width: int) -> Size:
        """Return the size of an image after resizing."""
        if self.resize == "exact":
            return self.size
        side = self.size[0]
        short, long = sorted((height, width))
        other = int(side * long / short)
        return (side, other) if height <= width else (other, side)

    def _resize_crop(self, pixels: Pixels, size: Size, start: tuple[int, int]) -> Pixels:
        """Return the crop, resized alone by Pillow to the same pixels as from the whole image."""
        rows, columns = self.crop
        height, width = pixels.shape[:2]
        top, bottom = _scale_range(start[0], rows, height / size[0])
        left, right = _scale_range(start[1], columns, width / size[1])
        box = (left, top, min(right, width), min(bottom, height))
        method = Image.Resampling[self.interpolation.upper()]
        image = Image.fromarray(pixels)
        return np.asarray(image.resize((columns, rows), method, box=box))

    def numbers(self, crops: "Tensor") -> "Tensor":
        """Convert ``(n, h, w, 3)`` crops, on any device, to normalised ``(n, 3, h, w)`` floats."""
        import torch

        mean = torch.tensor(self.mean, device=crops.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=crops.device).view(3, 1, 1)
        levels = crops.permute(0, 3, 1, 2).float()
        scaled = levels.mul_(1 / 255 / std)
        return scaled.sub_(mean / std)

    def _start(self, margin: int) -> int:
        return round(margin / 2) if self.offset == "round" else margin // 2


def _scale_range(start: int, length: int, scale: float) -> tuple[float, float]:
    """Return the start and end of a range of resized pixels, in pixels of the image."""
    return start * scale, (start + length) * scale


def _resize(pixels: Pixels, size: Size, interpolation: str) -> Pixels:
    """Resize with PyTorch's integer kernel, ten times as fast as Pillow's with AVX2."""
    import torch
    from torch.nn.functional import interpolate

    writable = np.require(pixels, requirements=["C", "W"])
    batch = torch.from_numpy(writable)[None].permute(0, 3, 1, 2)
    with torch.inference_mode():
        resized = interpolate(
            batch,
            size,
            mode=interpolation,
            antialias=True,
        )
        return resized[0].permute(1, 2, 0).numpy()
