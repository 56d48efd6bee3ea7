"""Decode images by one documented rule, and encode them: only this module reads pixels from files.

Reads the bytes of JPEG, PNG, WebP, TIFF, BMP and GIF files; needs Pillow. The result is always RGB,
8 bits:

* the EXIF orientation is applied (in a PNG only if it precedes the pixels);
* of several frames or pages, the first is used;
* palettes, CMYK, YCbCr and HSV become RGB as Pillow converts them; colour profiles are ignored;
* grey becomes three equal channels; 16 bits are scaled (``v / 257``, rounded), not clipped; 32-bit
  integers and floats have no standard range, so their own minimum and maximum become 0 and 255;
* transparency is composited on white.

Files may be hostile: only the six formats are tried, sizes are checked before decoding, every error
of Pillow becomes a ``RefusedImageError``, and a truncated file is refused, not filled up.
"""

import io
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from pairwright.schemas.config import ImagesConfig
from pairwright.schemas.errors import SourceError

Reason = Literal[
    "empty file",
    "not an image",
    "truncated image",
    "damaged image",
    "unsupported pixel format",
    "too many pixels",
    "too few pixels",
]
RGB = NDArray[np.uint8]

Image.MAX_IMAGE_PIXELS = None  # images.max_pixels bounds them instead
# Pillow warns of damaged metadata: the pixels are still usable.
warnings.filterwarnings("ignore", module=r"PIL\.")
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG",
    b"RIFF",
    b"II*\0",
    b"MM\0*",
    b"BM",
    b"GIF8",
)
_CONVERTIBLE = (
    "1",
    "L",
    "LA",
    "P",
    "PA",
    "RGB",
    "RGBX",
    "RGBA",
    "RGBa",
    "CMYK",
    "YCbCr",
    "HSV",
)
# chunks of a PNG that may follow the pixels, where readers differ
_PNG_LATE = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")


class RefusedImageError(SourceError):
    """Bytes that are not an accepted image: a constant ``reason``, and a ``detail`` that varies."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: Reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """Data of the header; width and height are those after the EXIF orientation is applied."""

    format: str
    width: int
    height: int


def probe_image(data: bytes, config: ImagesConfig) -> ImageInfo:
    """Read format and size from the header; refuse what is no image, or too large or small."""
    with _refusing(data):
        image = _open(data)
        width, height = image.size
        if _orientation(image) >= 5:
            width, height = height, width
        name = (image.format or "").lower()
    size = f"{width} x {height}"
    pixels = width * height
    if pixels > config.max_pixels:
        detail = f"{size}, {pixels:,} in all; images.max_pixels={config.max_pixels}"
        raise RefusedImageError("too many pixels", detail)
    if min(width, height) < config.min_side:
        detail = f"{size}; images.min_side={config.min_side}"
        raise RefusedImageError("too few pixels", detail)
    return ImageInfo(
        format="jpeg" if name == "mpo" else name,
        width=width,
        height=height,
    )


def decode_rgb(data: bytes) -> RGB:
    """Decode an image to ``(height, width, 3)`` by the rule above; else ``RefusedImageError``."""
    with _refusing(data):
        image = _open(data)
        orientation = _orientation(image)
        image.load()
        pixels = _rgb(image)
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def is_plain(data: bytes) -> bool:
    """Return whether other programs decode the same pixels as ``decode_rgb``; decodes nothing.

    True for JPEG, PNG and WebP with one frame that are RGB or grey, 8 bits, opaque and upright.
    """
    with _refusing(data):
        image = _open(data)
        if image.format not in ("JPEG", "PNG", "WEBP") or image.mode not in ("RGB", "L"):
            return False
        if image.format == "PNG" and not _is_plain_png(data):
            return False
        frames = getattr(image, "n_frames", 1)
        return frames == 1 and not image.has_transparency_data and _orientation(image) == 1


def _is_plain_png(data: bytes) -> bool:
    bits_per_channel = data[24]
    return bits_per_channel == 8 and not any(name in data for name in _PNG_LATE)


def encode_png(pixels: RGB) -> bytes:
    """Encode an ``(h, w, 3)`` or ``(h, w)`` array as PNG; the same pixels give the same bytes."""
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format="PNG", compress_level=6)
    return sink.getvalue()


def encode_jpeg(pixels: RGB) -> bytes:
    """Encode an ``(h, w, 3)`` array as JPEG of quality 95 without subsampling, a tenth of a PNG."""
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format="JPEG", quality=95, subsampling=0)
    return sink.getvalue()


def put_patch(pixels: RGB, patch: bytes, window: tuple[int, int, int, int]) -> RGB:
    """Return a copy of the ``(h, w, 3)`` image in which the patch fills the window x0, y0, x1, y1.

    ``RefusedImageError``: the patch cannot be decoded; ``ValueError``: it does not fit the window.
    """
    x0, y0, x1, y1 = window
    patched = pixels.copy()
    filling = decode_rgb(patch)
    if filling.shape != patched[y0:y1, x0:x1].shape:
        height, width, _ = filling.shape
        raise ValueError(f"a patch of {width} x {height} pixels does not fill the window {window}")
    patched[y0:y1, x0:x1] = filling
    return patched


def show_window(pixels: RGB, window: tuple[int, int, int, int]) -> RGB:
    """Return the window x0, y0, x1, y1 of an ``(h, w, 3)`` image, scaled to the image's size."""
    x0, y0, x1, y1 = window
    height, width = pixels.shape[:2]
    if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
        raise ValueError(f"the window {window} is outside an image of {width} x {height} pixels")
    crop = Image.fromarray(np.ascontiguousarray(pixels[y0:y1, x0:x1]))
    scaled = crop.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(scaled)


def _open(data: bytes) -> ImageFile.ImageFile:
    return Image.open(io.BytesIO(data), formats=FORMATS)


def _orientation(image: ImageFile.ImageFile) -> int:
    """Return 1 to 8; damaged EXIF counts as none, as does that of a TIFF.

    Pillow applies a TIFF's orientation while it loads the pixels.
    """
    if image.format == "TIFF":
        return 1
    try:
        # Not image.getexif(): for PNG that decodes the pixels to find EXIF after them.
        value: Any = Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 - Pillow raises anything on hostile EXIF; pixels are usable
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _rgb(image: Image.Image) -> RGB:
    if image.mode.startswith("I;16"):
        return _repeat_grey((np.asarray(image).astype(np.uint32) + 128) // 257)
    if image.mode in ("I", "F"):
        return _repeat_grey(_stretch(np.asarray(image, dtype=np.float64)))
    if image.mode not in _CONVERTIBLE:
        raise RefusedImageError("unsupported pixel format", image.mode)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image)
    # convert would copy an RGB image as well
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def _stretch(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values with their minimum at 0 and their maximum at 255."""
    halved = np.nan_to_num(values, posinf=0.0, neginf=0.0) / 2  # large floats would overflow
    lowest = halved.min()
    span = halved.max() - lowest
    if span > 0:
        return np.rint((halved - lowest) / span * 255)
    return np.zeros_like(halved)


def _repeat_grey(grey: NDArray[Any]) -> RGB:
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


@contextmanager
def _refusing(data: bytes) -> Generator[None]:
    try:
        if not data:
            raise RefusedImageError("empty file")
        yield
    except RefusedImageError:
        raise
    except UnidentifiedImageError as error:
        reason = "damaged image" if data.startswith(_STARTS) else "not an image"
        raise RefusedImageError(reason) from error
    except Exception as error:
        reason = "truncated image" if "truncated" in str(error).lower() else "damaged image"
        raise RefusedImageError(reason, f"{type(error).__name__}: {error}") from error
