"""Remover by a server that edits images (Qwen-Image-Edit, FLUX Kontext): "remove the ...".

It is sent the hole with its surroundings, as LaMa is, and returns that part of the image anew; only
the pixels of the hole are taken from it. Its fillings are inspected like LaMa's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pairwright.prompts import load_prompt
from pairwright.schemas.config import RemovalsConfig
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, encode_png
from pairwright.tasks.perception.image_faults import ImageFault
from pairwright.tasks.serving.chat import RefusedQuestionError, RowError
from pairwright.tasks.serving.edit_images import ImageEdit, edit_images
from pairwright.tasks.serving.untrusted import as_data

Pixels = NDArray[np.uint8]
REMOVE = "remove_element"
MIN_CONTEXT = 64
"""Minimum pixels around a hole, within the image."""
MAX_STRETCH = 1.05
"""Maximum ratio of the aspects of what was sent and what came back."""
OTHER_SHAPE = "an edited image of another shape"
UNREADABLE = "an edited image that cannot be read"


@dataclass(frozen=True, slots=True)
class SentCrop:
    """Hole with its surroundings, as it is sent."""

    edit: ImageEdit
    size: tuple[int, int]
    """Height and width in the image."""
    window: tuple[slice, slice]
    """Rows and columns of the hole's window in the crop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditingRemover:
    """Remover by a server that edits images."""

    config: RemovalsConfig
    name: str = "edited"

    @property
    def version(self) -> str:
        """Return the model's name."""
        return f"edited {self.config.editor.model}".strip()

    def prepare(
        self,
        image: Pixels,
        hole: NDArray[np.bool_],  # noqa: ARG002 (the instruction names what is removed)
        window: tuple[int, int, int, int],
        tag: str,
    ) -> SentCrop:
        """Return the surroundings of a hole's window, shrunk to ``max_side``."""
        x0, y0, x1, y1 = window
        height, width = image.shape[:2]
        across = max(ceil(self.config.context * (x1 - x0)), MIN_CONTEXT)
        down = max(ceil(self.config.context * (y1 - y0)), MIN_CONTEXT)
        left, right = max(x0 - across, 0), min(x1 + across, width)
        top, bottom = max(y0 - down, 0), min(y1 + down, height)
        crop = image[top:bottom, left:right]
        scale = min(1.0, self.config.max_side / max(crop.shape[:2]))
        sent = _resize(crop, (ceil(crop.shape[0] * scale), ceil(crop.shape[1] * scale)))
        instruction = load_prompt(REMOVE).render(tag=as_data(tag))
        return SentCrop(
            ImageEdit(encode_png(sent), instruction.strip()),
            crop.shape[:2],
            (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)),
        )

    def inpaint(self, prepared: Sequence[SentCrop]) -> list[Pixels | ImageFault]:
        """Return each window's pixels, or why there are none."""
        results = edit_images([crop.edit for crop in prepared], self.config.editor)
        return [_cut(crop, result) for crop, result in zip(prepared, results, strict=True)]


def _cut(crop: SentCrop, result: bytes | RowError) -> Pixels | ImageFault:
    """Return the window's pixels of an edited image."""
    if isinstance(result, RowError):
        is_final = isinstance(result, RefusedQuestionError)
        return ImageFault(reason=result.reason, detail=result.detail, is_final=is_final)
    try:
        edited = decode_rgb(result)
    except RefusedImageError as refused:
        return ImageFault(reason=UNREADABLE, detail=f"{refused.reason}: {refused.detail}")
    rows, columns = edited.shape[:2]
    height, width = crop.size
    stretch = (columns * height) / (rows * width)
    if not 1 / MAX_STRETCH <= stretch <= MAX_STRETCH:
        sizes = f"{columns} x {rows} pixels for {width} x {height}"
        return ImageFault(reason=OTHER_SHAPE, detail=sizes)
    return np.ascontiguousarray(_resize(edited, crop.size)[crop.window])


def _resize(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """Return pixels in a height and width."""
    import cv2

    if pixels.shape[:2] == size:
        return pixels
    shrinks = size[0] < pixels.shape[0]
    method = cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC
    return cv2.resize(pixels, size[::-1], interpolation=method).astype(np.uint8)
