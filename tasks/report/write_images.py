"""Write the pictures of a report: unchanged images, previews of large ones, masks as overlays.

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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.rows import ImageRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import (
    RGB,
    decode_rgb,
    encode_png,
    is_plain,
    put_patch,
    show_window,
)
from pairwright.tasks.images.masks import decode_mask

PICTURES = "images"  # subfolder of the pictures
MOST_SIDE = 640
SHOWN_AS_THEY_ARE = {"jpeg": "jpg", "png": "png", "webp": "webp"}
QUALITY = 85
FILL = 96  # opacity of a mask
EDGE = 255  # opacity of its rim
REACH = 6
"""Pixels of a picture around a patch: the filter reaches 3 beyond it, and those need 3 more."""
SAME_SHAPE = 0.02  # relative tolerance of two pictures' aspect ratios, as sides are whole pixels

Colour = tuple[int, int, int]
Window = tuple[int, int, int, int]
Patch = tuple[bytes, Window]  # PNG, and the replaced window x0, y0, x1, y1, the last two exclusive
CHANGED: Colour = (0, 190, 220)
REMOVED: Colour = (255, 45, 120)
TONE_COLOURS: tuple[Colour, ...] = (
    (255, 77, 109),
    (64, 201, 255),
    (255, 190, 11),
    (128, 237, 110),
    (200, 125, 255),
    (255, 133, 51),
    (45, 212, 191),
    (255, 120, 220),
)
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
        is_small = max(row.width, row.height) <= MOST_SIDE
        if row.format in SHOWN_AS_THEY_ARE and is_small and is_plain(row.image):
            ending = SHOWN_AS_THEY_ARE[row.format]
            return self._write(
                row.key,
                row.image,
                ending=ending,
                size=(row.width, row.height),
            )
        preview = _preview(decode_rgb(row.image))
        if is_small:
            png = encode_png(np.asarray(preview))
            return self._write(row.key, png, ending="png", size=preview.size)
        return self._add_jpeg(row.key, preview)

    def add_crop(
        self,
        key: str,
        pixels: RGB,
        window: Window,
    ) -> WrittenImage:
        """Write a window of an image ``(h, w, 3)`` at the size of the whole image."""
        if key in self.written:
            return self.written[key]
        return self._add_jpeg(key, _preview(show_window(pixels, window)))

    def _add_jpeg(self, key: str, image: Image.Image) -> WrittenImage:
        sink = io.BytesIO()
        image.save(sink, format="JPEG", quality=QUALITY)
        return self._write(
            key,
            sink.getvalue(),
            ending="jpg",
            size=image.size,
        )

    def add_patch(
        self,
        key: str,
        pixels: RGB,
        patch: Patch,
        *,
        over: WrittenImage,
    ) -> str:
        """Write the pixels of an image ``(h, w, 3)`` that a patch changes, as an overlay.

        Unchanged pixels stay transparent, since two sizes of one image differ slightly. Only the
        surroundings of the patch are resized: images are large, and have many patches. Returns an
        empty text if nothing changes.
        """
        if key in self.written:
            return self.written[key].src
        area = _affected_area(patch[1], pixels, over)
        before, after = _patch_area(pixels, patch, area)
        small_before = area.resize(before)
        small_after = area.resize(after)
        changed = (small_before != small_after).any(axis=2)
        opacity = np.uint8(255) * changed
        visible = np.dstack([small_after, opacity]) * changed[:, :, None]
        overlay = _transparent(over)
        overlay[area.y.start : area.y.stop, area.x.start : area.x.stop] = visible
        return self._add_overlay(key, overlay, over)

    def add_masks(
        self,
        key: str,
        masks: Sequence[tuple[Mask, Colour]],
        *,
        over: WrittenImage,
    ) -> str:
        """Write masks as one transparent overlay of a picture; empty: none.

        Adjacent masks of a colour are joined.
        """
        if key in self.written:
            return self.written[key].src
        overlay = _transparent(over)
        size = (over.width, over.height)
        for colour, group in groupby(masks, key=itemgetter(1)):
            joined = np.logical_or.reduce([decode_mask(mask) for mask, _ in group])
            small = Image.fromarray(joined).resize(size, Image.Resampling.NEAREST)
            painted = paint_mask(np.asarray(small), colour)
            overlay = np.where(painted[:, :, 3:] > 0, painted, overlay)
        return self._add_overlay(key, overlay, over)

    def add_heat(
        self,
        key: str,
        first: WrittenImage,
        second: WrittenImage,
    ) -> Heat:
        """Write the differences of two written pictures as an overlay."""
        png, share = draw_heat(self._read_picture(first), self._read_picture(second))
        src = ""
        if png:
            size = (first.width, first.height)
            src = self._write(key, png, ending="png", size=size).src
        ratio = (first.width / first.height) / (second.width / second.height)
        return Heat(
            src=src,
            share=share,
            stretched=abs(ratio - 1) > SAME_SHAPE,
        )

    def _read_picture(self, picture: WrittenImage) -> RGB:
        return decode_rgb((self.root / picture.src).read_bytes())

    def _add_overlay(
        self,
        key: str,
        pixels: NDArray[np.uint8],
        over: WrittenImage,
    ) -> str:
        if not pixels.any():
            return ""
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, format="PNG", optimize=True)
        return self._write(
            key,
            sink.getvalue(),
            ending="png",
            size=(over.width, over.height),
        ).src

    def _write(
        self,
        key: str,
        data: bytes,
        *,
        ending: str,
        size: tuple[int, int],
    ) -> WrittenImage:
        name = f"{PICTURES}/{key}.{ending}"
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        self.written[key] = WrittenImage(name, *size)
        return self.written[key]


def _transparent(picture: WrittenImage) -> NDArray[np.uint8]:
    return np.zeros((picture.height, picture.width, 4), np.uint8)


class AffectedRange(NamedTuple):
    """Pixels of a picture that a change affects on one axis, and the image's pixels below them."""

    start: int
    stop: int
    source_start: int
    source_stop: int
    scale: float  # pixels of the image per pixel of the picture


class AffectedArea(NamedTuple):
    """Affected ranges of both axes."""

    x: AffectedRange
    y: AffectedRange

    def resize(self, pixels: RGB) -> NDArray[np.uint8]:
        """Return the image's pixels below the area at the size of the area."""
        size = (self.x.stop - self.x.start, self.y.stop - self.y.start)
        box = (
            self.x.start * self.x.scale - self.x.source_start,
            self.y.start * self.y.scale - self.y.source_start,
            self.x.stop * self.x.scale - self.x.source_start,
            self.y.stop * self.y.scale - self.y.source_start,
        )
        image = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS, box=box)
        return np.asarray(image)


def _affected_area(window: Window, pixels: RGB, picture: WrittenImage) -> AffectedArea:
    x0, y0, x1, y1 = window
    height, width = pixels.shape[:2]
    return AffectedArea(
        x=_affected_range(x0, x1, width, picture.width),
        y=_affected_range(y0, y1, height, picture.height),
    )


def _affected_range(
    start: int,
    stop: int,
    size: int,
    shown_size: int,
) -> AffectedRange:
    """Return the affected range of a change, for an axis shown with ``shown_size`` pixels."""
    scale = size / shown_size
    first = max(int(start / scale) - REACH, 0)
    last = min(math.ceil(stop / scale) + REACH, shown_size)
    return AffectedRange(
        start=first,
        stop=last,
        source_start=int(first * scale),
        source_stop=min(math.ceil(last * scale), size),
        scale=scale,
    )


def _patch_area(
    pixels: RGB,
    patch: Patch,
    area: AffectedArea,
) -> tuple[RGB, RGB]:
    """Return the image's pixels below an area, without and with a patch."""
    data, (x0, y0, x1, y1) = patch
    left = area.x.source_start
    top = area.y.source_start
    before = pixels[top : area.y.source_stop, left : area.x.source_stop]
    window = (x0 - left, y0 - top, x1 - left, y1 - top)
    return before, put_patch(before, data, window)


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
VEIL = 150  # opacity, of 255, of the least difference
FULL = 235  # and of the greatest


def draw_heat(first: RGB, second: RGB) -> tuple[bytes, float]:
    """Return the map of two pictures ``(h, w, 3)`` as PNG, and the share that differs visibly.

    The second is resized to the first. The map is at most ``SIDE`` pixels wide and high, and empty
    if the pictures differ everywhere, or nowhere.
    """
    import cv2

    height, width = first.shape[:2]
    scale = min(SIDE / max(height, width), 1.0)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    difference = np.subtract(_blur_small(first, size), _blur_small(second, size))
    distance = np.linalg.norm(difference, axis=2)
    share = float((distance > VISIBLE).mean())
    if not 0 < share <= MOST_SHARE:
        return b"", share
    heat = np.clip((distance - VISIBLE / 2) / (GREATEST - VISIBLE / 2), 0, 1)
    levels = (heat * 255).astype(np.uint8)
    colours = cv2.applyColorMap(levels, cv2.COLORMAP_INFERNO)[:, :, ::-1]
    opacity = (VEIL + heat * (FULL - VEIL)).astype(np.uint8)
    sink = io.BytesIO()
    Image.fromarray(np.dstack([colours, opacity])).save(
        sink,
        format="PNG",
        optimize=True,
    )
    return sink.getvalue(), share


def _blur_small(pixels: RGB, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return blurred CIELAB pixels of an image resized to a size."""
    import cv2

    small = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BOX))
    lab = cv2.cvtColor(small.astype(np.float32) / np.float32(255), cv2.COLOR_RGB2LAB)
    return cv2.GaussianBlur(lab, (0, 0), BLUR).astype(np.float32, copy=False)
