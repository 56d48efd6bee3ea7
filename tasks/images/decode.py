"""Decode images by one documented rule, and encode them: only this module reads pixels from files.

Reads the bytes of JPEG, PNG, WebP, AVIF, TIFF, BMP and GIF files; needs Pillow, for HEIC and JPEG
XL its plugins (``PLUGINS``). The ending of a file's name does not count. The result is always RGB,
8 bits:

* the EXIF orientation is applied (in a PNG only if it precedes the pixels);
* of several frames or pages, the first is used;
* palettes, CMYK, YCbCr and HSV become RGB as Pillow converts them; colour profiles are ignored;
* grey becomes three equal channels; more than 8 bits, signs and fractions are scaled from a range
  of values (``tasks.images.depth``), of many bands those are shown that ``images.bands`` names;
* transparency is composited on white.

Files may be hostile: only these formats are tried, sizes are checked before decoding, every error
of Pillow becomes a ``RefusedImageError``, and a truncated file is refused, not filled up.
"""

import io
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError

from pairwright.schemas.config import ImagesConfig
from pairwright.tasks.images.depth import RGB, Rendered, needs_rendering, render
from pairwright.tasks.images.refusal import Reason, RefusedImageError
from pairwright.tasks.images.tiff import read_tiff_header, turn_upright

__all__ = [
    "RGB",
    "ImageInfo",
    "Reason",
    "RefusedImageError",
    "decode_rgb",
    "encode_jpeg",
    "encode_png",
    "is_image_start",
    "is_plain",
    "probe_image",
    "put_patch",
    "render_image",
    "show_window",
]

Image.MAX_IMAGE_PIXELS = None  # images.max_pixels bounds them instead
# Pillow warns of damaged metadata: the pixels are still usable.
warnings.filterwarnings("ignore", module=r"PIL\.")
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "TIFF", "BMP", "GIF")
PLUGINS = {
    "HEIC": ("HEIF", "pillow_heif", "pillow-heif"),
    "JPEG XL": ("JXL", "pillow_jxl", "pillow-jxl-plugin"),
}
"""Pillow's name, module and package of the formats that it has no decoder for."""
_HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_AVIF = (b"avif", b"avis")
_JXL = (b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n")
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG",
    b"RIFF",
    b"II*\0",
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
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
USUAL = ImagesConfig()
# chunks of a PNG that may follow the pixels, where readers differ
_PNG_LATE = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """Data of the header; width and height are those after the EXIF orientation is applied."""

    format: str
    width: int
    height: int


def probe_image(data: bytes, config: ImagesConfig) -> ImageInfo:
    """Read format and size from the header; refuse what is no image, or too large or small."""
    with _refusing(data):
        name, width, height = _read_size(data)
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


def _read_size(data: bytes) -> tuple[str, int, int]:
    """Return the format in small letters, and the width and height of an upright image."""
    header = read_tiff_header(data)
    if header is not None and (header.is_deep or header.has_other_bands):
        if header.orientation >= 5:
            return "tiff", header.height, header.width
        return "tiff", header.width, header.height
    image = _open(data)
    width, height = image.size
    if _orientation(image) >= 5:
        width, height = height, width
    return (image.format or "").lower(), width, height


def render_image(data: bytes, config: ImagesConfig) -> Rendered | None:
    """Return the picture of an image of more than 8 bits or other bands; ``None``: it is usual."""
    with _refusing(data):
        if not needs_rendering(data):
            return None
        rendered = render(data, config)
        orientation = 1
        if not data.startswith((b"II", b"MM")):
            orientation = _orientation(_open(data))
    return replace(
        rendered, pixels=np.ascontiguousarray(turn_upright(rendered.pixels, orientation))
    )


def decode_rgb(data: bytes) -> RGB:
    """Decode an image to ``(height, width, 3)`` by the rule above; else ``RefusedImageError``.

    Images of more than 8 bits are shown in a range of their own: in a dataset they are pictures of
    8 bits already, made by the settings of their source.
    """
    rendered = render_image(data, USUAL)
    if rendered is not None:
        return rendered.pixels
    with _refusing(data):
        image = _open(data)
        orientation = _orientation(image)
        image.load()
        pixels = _rgb(image)
    return np.ascontiguousarray(turn_upright(pixels, orientation))


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
    plugin = _plugin_of(data)
    return Image.open(io.BytesIO(data), formats=(plugin,) if plugin else FORMATS)


def _plugin_of(data: bytes) -> str:
    """Return Pillow's name of a format that a plugin reads, loaded; empty: it needs none."""
    name = ""
    brand = data[8:12] if data[4:8] == b"ftyp" else b""
    if data.startswith(_JXL):
        name = "JPEG XL"
    elif brand in _HEIC and not any(avif in data[12:64] for avif in _AVIF):
        name = "HEIC"
    if not name:
        return ""
    format_name, module, package = PLUGINS[name]
    try:
        loaded = import_module(module)
    except ImportError as error:
        detail = f"{name} needs the package {package}: python -m pip install 'pairwright[phone]'"
        raise RefusedImageError("format needs a package", detail) from error
    if name == "HEIC":
        loaded.register_heif_opener()
    return format_name


def is_image_start(data: bytes) -> bool:
    """Return whether bytes begin as an image of a format that is read."""
    return data.startswith((*_STARTS, *_JXL)) or data[4:8] == b"ftyp"


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
    if image.mode not in _CONVERTIBLE:
        raise RefusedImageError("unsupported pixel format", image.mode)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image)
    # convert would copy an RGB image as well
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


@contextmanager
def _refusing(data: bytes) -> Generator[None]:
    try:
        if not data:
            raise RefusedImageError("empty file")
        yield
    except RefusedImageError:
        raise
    except UnidentifiedImageError as error:
        reason = "damaged image" if is_image_start(data) else "not an image"
        raise RefusedImageError(reason) from error
    except Exception as error:
        reason = "truncated image" if "truncated" in str(error).lower() else "damaged image"
        raise RefusedImageError(reason, f"{type(error).__name__}: {error}") from error
