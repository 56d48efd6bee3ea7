"""The size at which a model sees images: one rule for training, its processor and evaluation.

Families with a grid of patches (Qwen2-VL and later) scale an image to multiples of a cell, within
two bounds of the processor. A training lowers the upper one to ``model.max_pixels`` and scales
images to the size that the processor itself would choose, so that the saved processor alone gives
the same tokens. InternVL cuts an image into tiles, as many as its shape asks for whatever its size:
a training lowers their number to those of ``model.max_pixels``. Other families get images of at
most ``model.max_pixels`` pixels; their processors hold no such bound. The finished model's folder
records it in ``image_size.json``.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.tasks.training.find_model import read_json

RECORD = "image_size.json"
LOWER = "shortest_edge"
UPPER = "longest_edge"
"""Names of the bounds in pixels in the settings of processors with a grid."""


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """Grid of a processor: the side of its cells, and the bounds on the pixels of an image."""

    cell: int
    min_pixels: int
    max_pixels: int

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Return the size that the processor scales an image to, by its own rule."""
        from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

        fitted_height, fitted_width = smart_resize(
            height, width, self.cell, self.min_pixels, self.max_pixels
        )
        return fitted_width, fitted_height


def bound_pixels(processor: Any, max_pixels: int, *, may_raise: bool = False) -> None:
    """Set the most pixels of an image in a processor with a grid or tiles; others have no bound.

    A lower bound of its own stays, unless ``may_raise``.
    """
    _bound_tiles(processor.image_processor, max_pixels, may_raise=may_raise)
    grid = grid_of(processor)
    if grid is None:
        return
    upper = max_pixels if may_raise else min(grid.max_pixels, max_pixels)
    lower = min(grid.min_pixels, upper)
    images = processor.image_processor
    images.size = type(images.size)(**{LOWER: lower, UPPER: upper})


def _bound_tiles(images: Any, max_pixels: int, *, may_raise: bool) -> None:
    """Set the most tiles of an image in a processor that cuts images into tiles of one size."""
    upper = getattr(images, "max_patches", None)
    size = images.size
    if not isinstance(upper, int) or not (size and size.height and size.width):
        return
    tiles = max(1, max_pixels // (size.height * size.width))
    images.max_patches = tiles if may_raise else min(upper, tiles)
    images.min_patches = min(images.min_patches, images.max_patches)


def grid_of(processor: Any) -> ImageGrid | None:
    """Return the grid of a processor; ``None``: it has none with bounds in pixels."""
    images = processor.image_processor
    options = getattr(images, "valid_kwargs", None)
    if "max_pixels" not in getattr(options, "__annotations__", {}):
        return None
    cell = images.patch_size * images.merge_size
    return ImageGrid(cell, images.size[LOWER], images.size[UPPER])


def write_image_size(folder: Path, processor: Any, max_pixels: int) -> None:
    """Record in a finished model's folder the size of the images that it was trained with."""
    content = {"max_pixels": max_pixels}
    grid = grid_of(processor)
    if grid:
        content = {"max_pixels": grid.max_pixels, "min_pixels": grid.min_pixels}
    (folder / RECORD).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_max_pixels(folder: Path) -> int:
    """Return the most pixels of an image that a model was trained with; 0: not recorded."""
    if not (folder / RECORD).is_file():
        return 0
    value = read_json(folder / RECORD).get("max_pixels")
    return value if isinstance(value, int) and value > 0 else 0
