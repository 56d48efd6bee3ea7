"""Write the pictures of a report: images as their source gave them, small previews of large ones, masks as overlays.

Reads ``ImageRow`` and masks, writes files below ``images/``. Browsers show JPEG, PNG and WebP themselves; what they
would not show as models see it (TIFF, moving pictures), and what is large, is decoded by our own rule.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.report.draw_heat import draw_heat
from pairwright.tasks.store.images import RGB, decode_rgb, encode_png, put_patch, show_window
from pairwright.tasks.store.masks import decode_mask

FOLDER = "images"
SIDES = ("first", "second")
MOST_SIDE = 640
SHOWN_AS_THEY_ARE = {"jpeg": "jpg", "png": "png", "webp": "webp"}
MOVING = (b"acTL", b"ANIM")
"""Chunks of moving PNG and WebP files, of which models see the first frame."""
QUALITY = 85
FILL, EDGE = 96, 255

RIM = 4
"""Pixels around a patch that are made smaller with it: the filter's reach is 3."""

Colour = tuple[int, int, int]
Window = tuple[int, int, int, int]
Patch = tuple[bytes, Window]
"""PNG, and the pixels x0, y0, x1, y1 that it replaces, the last two exclusive."""
CHANGED: Colour = (0, 190, 220)
REMOVED: Colour = (255, 45, 120)
TONE_COLOURS: tuple[Colour, ...] = (
    (255, 77, 109), (64, 201, 255), (255, 190, 11), (128, 237, 110),
    (200, 125, 255), (255, 133, 51), (45, 212, 191), (255, 120, 220),
)  # fmt: skip
"""Of elements of one image, by tone; the style sheet has the same."""


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

    def add_crop(self, key: str, pixels: RGB, window: Window) -> Picture:
        """Write what of an image ``(h, w, 3)`` is in a window, at the size of the whole image."""
        if key in self._written:
            return self._written[key]
        return self._add_pixels(key, Image.fromarray(show_window(pixels, window)), plain=False)

    def add_patch(self, key: str, pixels: RGB, patch: Patch, *, over: Picture) -> str:
        """Write what a patch changes in an image ``(h, w, 3)`` as an overlay of its picture; empty: nothing.

        Only the patch and a rim around it are brought to the picture's size, whatever the image's. Pixels that the
        patch leaves as they are stay transparent: two sizes of one image show the same elsewhere.
        """
        if key in self._written:
            return self._written[key].src
        place, before, after = _both(pixels, patch, over)
        changed = (before != after).any(axis=2)
        if not changed.any():
            return ""
        x0, y0, x1, y1 = place
        shown = np.zeros((over.height, over.width, 4), np.uint8)
        shown[y0:y1, x0:x1, :3] = after * changed[:, :, None]
        shown[y0:y1, x0:x1, 3] = changed * np.uint8(255)
        return self._write_overlay(key, shown, over)

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
        return self._write_overlay(key, paint_mask(_shrunk(joined, over), colour), over)

    def add_tones(self, key: str, masks: Sequence[tuple[Mask, int]], *, over: Picture) -> str:
        """Write masks as one overlay, each with the colour of its tone; return its name, empty where there are none."""
        if key in self._written or not masks:
            return self._written[key].src if masks else ""
        shown = np.zeros((over.height, over.width, 4), np.uint8)
        for mask, tone in masks:
            painted = paint_mask(_shrunk(decode_mask(mask), over), TONE_COLOURS[tone])
            shown = np.where(painted[:, :, 3:] > 0, painted, shown)
        return self._write_overlay(key, shown, over)

    def add_heat(self, key: str, first: Picture, second: Picture) -> tuple[str, float]:
        """Write where two written pictures differ as one overlay; return its name, empty: none, and how much does."""
        one, other = (decode_rgb((self.root / picture.src).read_bytes()) for picture in (first, second))
        heat = draw_heat(one, other)
        if not heat.png:
            return "", heat.share
        return self._write(key, heat.png, ending="png", size=(first.width, first.height)).src, heat.share

    def _write_overlay(self, key: str, pixels: NDArray[np.uint8], over: Picture) -> str:
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


def _shrunk(mask: NDArray[np.bool_], over: Picture) -> NDArray[np.bool_]:
    return np.asarray(Image.fromarray(mask).resize((over.width, over.height), Image.Resampling.NEAREST))


def _both(pixels: RGB, patch: Patch, over: Picture) -> tuple[Window, RGB, RGB]:
    """Return the place of a patch in a picture with the pixels there before and after, at the picture's size."""
    data, (x0, y0, x1, y1) = patch
    height, width = pixels.shape[:2]
    across, down = over.width / width, over.height / height
    rim = 0 if (width, height) == (over.width, over.height) else RIM
    left, top = max(int(x0 * across) - rim, 0), max(int(y0 * down) - rim, 0)
    right = min(math.ceil(x1 * across) + rim, over.width)
    bottom = min(math.ceil(y1 * down) + rim, over.height)
    from_x, from_y = int(left / across), int(top / down)
    to_x, to_y = min(math.ceil(right / across), width), min(math.ceil(bottom / down), height)
    before = pixels[from_y:to_y, from_x:to_x]
    after = put_patch(before, data, (x0 - from_x, y0 - from_y, x1 - from_x, y1 - from_y))
    if not rim:
        return (left, top, right, bottom), before, after
    box = (left / across - from_x, top / down - from_y)
    box = (*box, min(right / across, width) - from_x, min(bottom / down, height) - from_y)
    size = (right - left, bottom - top)
    small = [
        np.asarray(Image.fromarray(np.ascontiguousarray(one)).resize(size, Image.Resampling.LANCZOS, box=box))
        for one in (before, after)
    ]
    return (left, top, right, bottom), small[0], small[1]


def paint_mask(mask: NDArray[np.bool_], colour: Colour) -> NDArray[np.uint8]:
    """Return RGBA pixels: the mask half transparent, its rim full, nothing elsewhere."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    pixels = np.zeros((*mask.shape, 4), np.uint8)
    pixels[mask] = (*colour, EDGE)
    pixels[mask & inside] = (*colour, FILL)
    return pixels
