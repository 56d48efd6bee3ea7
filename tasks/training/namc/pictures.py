"""What the small NAMC sees of an image, without any weights: its patches, and their colours as codes to be told.

Images are squashed to 64 x 64 pixels, so that places of a pair are comparable. A place is a patch of 8 x 8 pixels: its
features are their values, its code is its mean colour, four levels per channel. CLIP, the CNN and VQGAN of the paper
see the same 8 x 8 grid here in one and the same crop.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.tasks.models.namc.sizes import NamcSizes
from pairwright.tasks.store.images import decode_rgb

if TYPE_CHECKING:
    from torch import Tensor

SIDE, PATCH, LEVELS = 64, 8, 4
PLACES = (SIDE // PATCH) ** 2
WORDS = 1_000
"""Tokens of the decoder's vocabulary, at the most."""
CLIP: dict[str, Any] = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": SIDE, "layers": 3, "width": 96, "head_width": 24, "patch_size": PATCH},
    "text_cfg": {"context_length": 77, "vocab_size": 49_408, "width": 64, "heads": 2, "layers": 2},
}
"""A dual encoder of CLIP's form, learnt from scratch (4 M weights, of which 3 M are words)."""
TOKENIZER = "ViT-B-32"
"""Whose tokenizer is CLIP's own; open_clip brings it."""


def sizes_for(vocabulary: int) -> NamcSizes:
    """Return the sizes of the small model."""
    return NamcSizes(
        width=96, heads=4, places=PLACES, features=3 * PATCH**2, codes=LEVELS**3, vocabulary=vocabulary, dropout=0.0
    )


def crop(data: bytes) -> NDArray[np.uint8]:
    """Return ``(64, 64, 3)`` RGB of an encoded image.

    Raises:
        RefusedImageError: it cannot be decoded.
    """
    import cv2

    return np.asarray(cv2.resize(decode_rgb(data), (SIDE, SIDE), interpolation=cv2.INTER_AREA), dtype=np.uint8)


def to_pixels(crops: "Tensor") -> "Tensor":
    """Return ``(..., 3, 64, 64)`` numbers in [-1, 1] of ``(..., 64, 64, 3)`` bytes."""
    return crops.movedim(-1, -3).float() / 127.5 - 1


def to_patches(crops: "Tensor") -> "Tensor":
    """Return ``(..., places, 192)``: the values of each patch, in [-1, 1]."""
    return _split(crops).flatten(-3).float() / 127.5 - 1


def to_codes(crops: "Tensor") -> "Tensor":
    """Return ``(..., places)``: each patch's mean colour as one of 64 codes, red counting most."""
    means = _split(crops).float().mean((-3, -2))
    levels = (means * LEVELS / 256).long()
    return levels @ torch.tensor([LEVELS**2, LEVELS, 1], device=crops.device)


def _split(crops: "Tensor") -> "Tensor":
    """Return ``(..., places, 8, 8, 3)``."""
    rows = crops.unflatten(-3, (-1, PATCH)).unflatten(-2, (-1, PATCH))  # (..., rows, 8, columns, 8, 3)
    return rows.transpose(-4, -3).flatten(-5, -4)


def stack(crops: Sequence[NDArray[np.uint8]]) -> "Tensor":
    """Return crops as one tensor of bytes."""
    return torch.from_numpy(np.stack(crops))
