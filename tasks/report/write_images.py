"""Write the pictures of a report: images as their source gave them, previews of large ones, masks as overlays.

Browsers show JPEG, PNG and WebP as they are; large images, and those that browsers would show
differently from a model's input (TIFF, animations), are decoded as for models.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB, decode_rgb, encode_png, put_patch, show_window
from pairwright.tasks.images.masks import decode_mask

PICTURES = "images"  # subfolder of the pictures
MOST_SIDE = 640
SHOWN_AS_THEY_ARE = {"jpeg": "jpg", "png": "png", "webp": "webp"}
MOVING = (
    b"acTL",
    b"ANIM",
)  # chunks of animated PNG and WebP files, of which models see the first frame
QUALITY = 85
FILL, EDGE = 96, 255
REACH = (
    6  # pixels of a picture around a patch: the filter reaches 3 beyond it, and those need 3 more
)
SAME_SHAPE = 0.02  # relative tolerance of two pictures' aspect ratios, as sides are whole pixels

Colour = tuple[int, int, int]
Window = tuple[int, int, int, int]
Patch = tuple[bytes, Window]  # PNG, and the replaced window x0, y0, x1, y1, the last two exclusive
CHANGED: Colour = (0, 190, 220)
REMOVED: Colour = (255, 45, 120)
TONE_COLOURS: tuple[Colour, ...] = (
    (255, 77, 109), (64, 201, 255), (255, 190, 11), (128, 237, 110),
    (200, 125, 255), (255, 133, 51), (45, 212, 191), (255, 120, 220),
)  # fmt: skip
"""Colours of an image's elements by tone, as in the style sheet."""


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """Written file, relative to the pages, with its size in pixels."""

    src: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Map of the differences of a pair's images."""

    src: str  # overlay of both pictures; empty: they differ everywhere, or nowhere
    share: float  # share of the picture that differs visibly
    stretched: bool  # whether the second image was resized to the first's shape


@dataclass
class PictureFolder:
    """Folder of pictures, each written once."""

    root: Path
    written: dict[str, WrittenImage] = field(default_factory=dict[str, WrittenImage])  # by key

    def add_image(self, row: ImageRow) -> WrittenImage:
        """Write an image or its preview."""
        if row.key in self.written:
            return self.written[row.key]
        moving = any(mark in row.image[:4096] for mark in MOVING)
        small = max(row.width, row.height) <= MOST_SIDE
        if row.format in SHOWN_AS_THEY_ARE and small and not moving:
            return self._write(
                row.key,
                row.image,
                ending=SHOWN_AS_THEY_ARE[row.format],
                size=(row.width, row.height),
            )
        shown = _preview(decode_rgb(row.image))
        if small:
            return self._write(
                row.key, encode_png(np.asarray(shown)), ending="png", size=shown.size
            )
        return self._add_jpeg(row.key, shown)

    def add_crop(self, key: str, pixels: RGB, window: Window) -> WrittenImage:
        """Write a window of an image ``(h, w, 3)`` at the size of the whole image."""
        return self.written.get(key) or self._add_jpeg(key, _preview(show_window(pixels, window)))

    def _add_jpeg(self, key: str, image: Image.Image) -> WrittenImage:
        sink = io.BytesIO()
        image.save(sink, format="JPEG", quality=QUALITY)
        return self._write(key, sink.getvalue(), ending="jpg", size=image.size)

    def add_patch(self, key: str, pixels: RGB, patch: Patch, *, over: WrittenImage) -> str:
        """Write the pixels of an image ``(h, w, 3)`` that a patch changes as an overlay of its picture; empty: none.

        Unchanged pixels stay transparent, since two sizes of one image differ slightly. Only the
        surroundings of the patch are resized: images are large, and have many patches.
        """
        if key in self.written:
            return self.written[key].src
        data, (x0, y0, x1, y1) = patch
        left, right, from_x, to_x = _around(x0, x1, pixels.shape[1], over.width)
        top, bottom, from_y, to_y = _around(y0, y1, pixels.shape[0], over.height)
        whole = pixels[from_y:to_y, from_x:to_x]
        across, down = pixels.shape[1] / over.width, pixels.shape[0] / over.height
        box = (
            left * across - from_x,
            top * down - from_y,
            right * across - from_x,
            bottom * down - from_y,
        )
        before, after = (
            np.asarray(
                Image.fromarray(one).resize(
                    (right - left, bottom - top), Image.Resampling.LANCZOS, box=box
                )
            )
            for one in (
                whole,
                put_patch(whole, data, (x0 - from_x, y0 - from_y, x1 - from_x, y1 - from_y)),
            )
        )
        changed = (before != after).any(axis=2)
        shown = np.zeros((over.height, over.width, 4), np.uint8)
        shown[top:bottom, left:right] = (
            np.dstack([after, np.uint8(255) * changed]) * changed[:, :, None]
        )
        return self._add_overlay(key, shown, over)

    def add_masks(
        self, key: str, masks: Sequence[tuple[Mask, Colour]], *, over: WrittenImage
    ) -> str:
        """Write masks as one transparent overlay of a picture, adjacent ones of a colour joined; empty: none."""
        if key in self.written:
            return self.written[key].src
        shown = np.zeros((over.height, over.width, 4), np.uint8)
        for colour, same in groupby(masks, key=itemgetter(1)):
            joined = np.logical_or.reduce([decode_mask(mask) for mask, _ in same])
            small = Image.fromarray(joined).resize(
                (over.width, over.height), Image.Resampling.NEAREST
            )
            painted = paint_mask(np.asarray(small), colour)
            shown = np.where(painted[:, :, 3:] > 0, painted, shown)
        return self._add_overlay(key, shown, over)

    def add_heat(self, key: str, first: WrittenImage, second: WrittenImage) -> Heat:
        """Write the differences of two written pictures as an overlay."""
        png, share = draw_heat(
            *(decode_rgb((self.root / one.src).read_bytes()) for one in (first, second))
        )
        shapes = [picture.width / picture.height for picture in (first, second)]
        src = (
            self._write(key, png, ending="png", size=(first.width, first.height)).src if png else ""
        )
        return Heat(src=src, share=share, stretched=abs(shapes[0] / shapes[1] - 1) > SAME_SHAPE)

    def _add_overlay(self, key: str, pixels: NDArray[np.uint8], over: WrittenImage) -> str:
        if not pixels.any():
            return ""
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, format="PNG", optimize=True)
        return self._write(key, sink.getvalue(), ending="png", size=(over.width, over.height)).src

    def _write(self, key: str, data: bytes, *, ending: str, size: tuple[int, int]) -> WrittenImage:
        name = f"{PICTURES}/{key}.{ending}"
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.written[key] = WrittenImage(name, *size)
        return self.written[key]


def _around(start: int, stop: int, size: int, shown: int) -> tuple[int, int, int, int]:
    """Return the range of a picture's pixels that a change of an image affects, and the image's pixels below."""
    scale = size / shown
    first, last = max(int(start / scale) - REACH, 0), min(math.ceil(stop / scale) + REACH, shown)
    return first, last, int(first * scale), min(math.ceil(last * scale), size)


def _preview(pixels: RGB) -> Image.Image:
    image = Image.fromarray(pixels)
    image.thumbnail((MOST_SIDE, MOST_SIDE), Image.Resampling.LANCZOS)
    return image


def paint_mask(mask: NDArray[np.bool_], colour: Colour) -> NDArray[np.uint8]:
    """Return RGBA pixels: the mask translucent, its rim opaque, the rest transparent."""
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    pixels = np.zeros((*mask.shape, 4), np.uint8)
    pixels[mask] = (*colour, EDGE)
    pixels[mask & inside] = (*colour, FILL)
    return pixels


VISIBLE = 10.0  # least colour distance of differing pixels
GREATEST = 60.0  # colour distance of the lightest shade; greater ones look the same
MOST_SHARE = 0.4  # largest share of a picture that a map shows as different
SIDE = 320  # pixels of the blurred overlay's longer side
BLUR = 1.5
VEIL, FULL = 150, 235  # opacity, of 255, of the least and the greatest difference


def draw_heat(first: RGB, second: RGB) -> tuple[bytes, float]:
    """Return the map of two pictures ``(h, w, 3)`` as PNG, and the share that differs visibly.

    The second is resized to the first. The map is at most ``SIDE`` pixels wide and high, and empty
    if the pictures differ everywhere, or nowhere.
    """
    import cv2

    height, width = first.shape[:2]
    scale = min(SIDE / max(height, width), 1.0)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    small = (
        np.asarray(Image.fromarray(one).resize(size, Image.Resampling.BOX))
        for one in (first, second)
    )
    labs = (
        cv2.cvtColor(one.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2LAB) for one in small
    )
    distance = np.linalg.norm(
        np.subtract(*(cv2.GaussianBlur(lab, (0, 0), BLUR) for lab in labs)), axis=2
    )
    share = float((distance > VISIBLE).mean())
    if not 0 < share <= MOST_SHARE:
        return b"", share
    heat = np.clip((distance - VISIBLE / 2) / (GREATEST - VISIBLE / 2), 0, 1)
    colours = cv2.applyColorMap((heat * 255).astype(np.uint8), cv2.COLORMAP_INFERNO)[:, :, ::-1]
    opacity = (VEIL + heat * (FULL - VEIL)).astype(np.uint8)
    sink = io.BytesIO()
    Image.fromarray(np.dstack([colours, opacity])).save(sink, format="PNG", optimize=True)
    return sink.getvalue(), share
