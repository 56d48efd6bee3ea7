"""Write the pictures of a report: images as their source gave them, small previews of large ones, masks as overlays.

Reads ``ImageRow`` and masks, writes files below ``images/``. Browsers show JPEG, PNG and WebP themselves; what they
would not show as models see it (TIFF, moving pictures), and what is large, is decoded by our own rule.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from schemas.rows import ImageRow
from schemas.scene import Mask
from tasks.store.images import decode_rgb, encode_png
from tasks.store.masks import decode_mask

FOLDER = "images"
MOST_SIDE = 640
SHOWN_AS_THEY_ARE = {"jpeg": "jpg", "png": "png", "webp": "webp"}
MOVING = (b"acTL", b"ANIM")
"""Chunks of moving PNG and WebP files, of which models see the first frame."""
QUALITY = 85
FILL, EDGE = 96, 255

Colour = tuple[int, int, int]
CHANGED: Colour = (0, 190, 220)
REMOVED: Colour = (255, 45, 120)


@dataclass(frozen=True, slots=True)
class Picture:
    """Name a written file, relative to the pages, with its size in pixels."""

    src: str
    width: int
    height: int


@dataclass
class PictureFolder:
    """Write each picture once."""

    root: Path
    _written: dict[str, Picture] = field(default_factory=dict[str, Picture])

    def add_image(self, row: ImageRow) -> Picture:
        """Write an image, or a preview of it."""
        if row.key in self._written:
            return self._written[row.key]
        moving = any(mark in row.image[:4096] for mark in MOVING)
        small = max(row.width, row.height) <= MOST_SIDE
        if row.format in SHOWN_AS_THEY_ARE and small and not moving:
            return self._write(row.key, row.image, ending=SHOWN_AS_THEY_ARE[row.format], size=(row.width, row.height))
        image = Image.fromarray(decode_rgb(row.image))
        return self._add_pixels(row.key, image, plain=small)

    def add_removal(self, key: str, data: bytes) -> Picture:
        """Write an image from which something was removed (PNG)."""
        if key in self._written:
            return self._written[key]
        with Image.open(io.BytesIO(data), formats=["PNG"]) as header:
            size = header.size
        if max(size) <= MOST_SIDE:
            return self._write(key, data, ending="png", size=size)
        return self._add_pixels(key, Image.fromarray(decode_rgb(data)), plain=False)

    def _add_pixels(self, key: str, image: Image.Image, *, plain: bool) -> Picture:
        image.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
        if plain:
            return self._write(key, encode_png(np.asarray(image)), ending="png", size=image.size)
        sink = io.BytesIO()
        image.save(sink, format="JPEG", quality=QUALITY)
        return self._write(key, sink.getvalue(), ending="jpg", size=image.size)

    def add_masks(self, key: str, masks: Sequence[Mask], *, over: Picture, colour: Colour) -> str:
        """Write masks as one transparent overlay of a picture; return its name, empty where they are empty."""
        if key in self._written:
            return self._written[key].src
        joined = np.logical_or.reduce([decode_mask(mask) for mask in masks]) if masks else np.zeros((1, 1), bool)
        if not joined.any():
            return ""
        small = Image.fromarray(joined).resize((over.width, over.height), Image.Resampling.NEAREST)
        pixels = paint_mask(np.asarray(small), colour)
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, format="PNG", optimize=True)
        return self._write(key, sink.getvalue(), ending="png", size=(over.width, over.height)).src

    def _write(self, key: str, data: bytes, *, ending: str, size: tuple[int, int]) -> Picture:
        name = f"{FOLDER}/{key}.{ending}"
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self._written[key] = Picture(name, *size)
        return self._written[key]


def paint_mask(mask: NDArray[np.bool_], colour: Colour) -> NDArray[np.uint8]:
    """Return RGBA pixels: the mask half transparent, its rim full, nothing elsewhere."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    pixels = np.zeros((*mask.shape, 4), np.uint8)
    pixels[mask] = (*colour, EDGE)
    pixels[mask & inside] = (*colour, FILL)
    return pixels
