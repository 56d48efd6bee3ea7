"""Make 8 bits of deeper samples: 10 to 32 bits, signed, with fractions, and of many bands.

The range of values that becomes 0 to 255, first match:

1. ``images.range`` as two numbers: these;
2. what the file states (``file``, the default): PNG's ``sBIT``, TIFF's ``MaxSampleValue``,
   ``SMinSampleValue`` and ``SMaxSampleValue``, 10, 12 or 14 ``BitsPerSample``; not if values lie
   beyond it;
3. robust percentiles, 0.1 and 99.9: single hot or dead pixels do not count. Unsigned 16 bits that
   are used by half or more keep their full range, so that a common scan is shown as it is.

A build measures its source once (``measure_ranges``) and shows all images of one type of number in
one range: a stretch of each image alone would make differences that are none.
"""

import io
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.config import ImagesConfig
from pairwright.tasks.images.refusal import RefusedImageError
from pairwright.tasks.images.tiff import (
    WHITE_IS_ZERO,
    Samples,
    TiffHeader,
    read_page_stack,
    read_tiff_header,
    read_tiff_samples,
    read_with_opencv,
)

RGB = NDArray[np.uint8]
PERCENTILES = (0.1, 99.9)
MAX_VALUES = 1_000_000
"""Values of an image that its percentiles are taken of."""
FEW = 256
"""Pixels of an image too small for percentiles."""
FULL_16 = (0.0, 65535.0)
HALF = 32768
DARK = 16
BRIGHT = 239
NEARLY = 95
"""Percentage of values at or below ``DARK``, or at or above ``BRIGHT``, of a picture without
contents."""
NEARLY_BLACK = "comes out nearly black"
NEARLY_WHITE = "comes out nearly white"
BY_SETTING = "by images.range"
BY_FILE = "stated by the file"
BY_SOURCE = "of the source"
BY_IMAGE = "of this image alone"
_RENDERING = re.compile(r"(\w+) (\S+) to (\S+), ")
_PNG_DEEP = 16


@dataclass(frozen=True, slots=True)
class Deep:
    """Samples of an image before they become 8 bits."""

    values: Samples
    kind: str
    """Type of the numbers: "uint16"."""
    alpha: NDArray[Any] | None = None
    """``(h, w, 1)`` share of the image over white, if it has transparency."""
    stated: tuple[float, float] | None = None
    missing: float | None = None
    is_inverted: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    """Picture of 8 bits, with how it was made."""

    pixels: RGB
    how: str
    """"uint16 0 to 4095, stated by the file; bands 3, 2, 1"."""
    remark: str
    """``NEARLY_BLACK``, ``NEARLY_WHITE``, or empty."""


def needs_rendering(data: bytes) -> bool:
    """Return whether an image has deeper samples or other bands; reads its header only."""
    header = read_tiff_header(data)
    if header is not None:
        return header.is_deep or header.has_other_bands
    return is_deep_png(data)


def is_deep_png(data: bytes) -> bool:
    """Return whether an image is a PNG of 16 bits."""
    return data.startswith(b"\x89PNG\r\n\x1a\n") and data[24:25] == bytes([_PNG_DEEP])


def render(data: bytes, config: ImagesConfig) -> Rendered:
    """Return the picture of an image that ``needs_rendering``, upright for TIFF only.

    ``RefusedImageError``: it cannot be read, or has bands that ``images.bands`` must name.
    """
    deep = read_deep(data, config.bands)
    (low, high), origin = choose_range(deep, config)
    pixels = _scale(deep, low, high)
    how = f"{deep.kind} {low:g} to {high:g}, {origin}"
    if config.bands:
        how += f"; bands {', '.join(map(str, config.bands))}"
    return Rendered(pixels, how, _remark(pixels))


def read_deep(data: bytes, bands: Sequence[int] = ()) -> Deep:
    """Return the samples of a deep image, of some of its bands (1 is the first) if named."""
    header = read_tiff_header(data)
    if header is None:
        return _read_png(data, bands)
    return _read_tiff(data, header, bands)


def _read_png(data: bytes, bands: Sequence[int]) -> Deep:
    stated = _significant_bits(data)
    if data[25] == 0:  # grey without transparency: Pillow keeps its 16 bits
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            values = np.asarray(image).astype(np.uint16)[:, :, None]
    else:
        values = read_with_opencv(data)
    if bands:
        values = _choose_bands(values, bands)
        return Deep(values, "uint16", stated=stated)
    if values.shape[2] == 4:
        return Deep(values[:, :, :3], "uint16", values[:, :, 3:] / FULL_16[1], stated)
    return Deep(values, "uint16", stated=stated)


def _significant_bits(data: bytes) -> tuple[float, float] | None:
    """Return the range of the significant bits that a PNG states in ``sBIT``."""
    position = 8
    while position + 12 <= len(data):
        size, name = struct.unpack(">I4s", data[position : position + 8])
        if name == b"IDAT":
            return None
        if name == b"sBIT" and 1 <= size <= 4:
            bits = max(data[position + 8 : position + 8 + size])
            return (0.0, 2.0**bits - 1) if 8 <= bits < _PNG_DEEP else None
        position += size + 12
    return None


def _read_tiff(data: bytes, header: TiffHeader, bands: Sequence[int]) -> Deep:
    fields: dict[str, Any] = {
        "stated": header.stated,
        "missing": header.missing,
        "is_inverted": header.photometric == WHITE_IS_ZERO,
    }
    if bands:
        values = _choose_bands(read_page_stack(data, header), bands)
        return Deep(values, str(values.dtype), **fields)
    if header.has_other_bands:
        raise RefusedImageError(
            "four bands or more" if header.bands > 3 else "no such bands",
            f"{header.bands} bands of {header.bits} bits: name one or three to show, "
            "images.bands=[3,2,1]",
        )
    values = read_tiff_samples(data, header)
    kind = str(values.dtype)
    if values.shape[2] == header.colours + 1 and values.dtype.kind == "u":
        most = np.iinfo(values.dtype).max
        return Deep(values[:, :, :-1], kind, values[:, :, -1:] / most, **fields)
    return Deep(values, kind, **fields)


def _choose_bands(values: Samples, bands: Sequence[int]) -> Samples:
    count = values.shape[2]
    if max(bands) > count:
        chosen = ", ".join(map(str, bands))
        raise RefusedImageError("no such bands", f"images.bands {chosen} of an image of {count}")
    return values[:, :, [band - 1 for band in bands]]


def choose_range(deep: Deep, config: ImagesConfig) -> tuple[tuple[float, float], str]:
    """Return the range of values of a picture, and its origin in words."""
    if not isinstance(config.range, str):
        return config.range, BY_SETTING
    measured = read_measured(config.measured)
    if deep.kind in measured:
        return measured[deep.kind], BY_SOURCE
    low, high, is_stated = measure_range(deep, by_file=config.range == "file")
    return (low, high), BY_FILE if is_stated else BY_IMAGE


def measure_range(deep: Deep, *, by_file: bool) -> tuple[float, float, bool]:
    """Return the range of one image's values, and whether its file states it."""
    step = max(1, deep.values.size // MAX_VALUES)
    values = deep.values.reshape(-1)[::step]
    if deep.kind.startswith("float"):
        values = values[np.isfinite(values)]
    if deep.missing is not None:
        values = values[values != deep.missing]
    if not values.size:
        return 0.0, 0.0, False
    few = deep.values.shape[0] * deep.values.shape[1] < FEW
    least, most = (0, 100) if few else PERCENTILES
    low = float(np.percentile(values, least, method="lower"))
    high = float(np.percentile(values, most, method="higher"))
    if by_file and deep.stated and deep.stated[0] <= low and high <= deep.stated[1]:
        return (*deep.stated, True)
    if deep.kind == "uint8":
        return 0.0, 255.0, True
    if deep.kind == "uint16" and (few or high - low >= HALF):
        return (*FULL_16, False)
    return low, high, False


def read_measured(measured: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return measured ranges by type of number, as ``measure_ranges`` words them."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in measured:
        kind, low, high = text.split()
        ranges[kind] = (float(low), float(high))
    return ranges


def measure_ranges(renderings: Iterable[str]) -> tuple[str, ...]:
    """Return the common range of each type of number, of pictures made one by one.

    It holds the ranges of all, so that nothing of any image is cut off.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for how in renderings:
        match = _RENDERING.match(how)
        if match is None:
            continue
        kind, low, high = match[1], float(match[2]), float(match[3])
        known_low, known_high = ranges.get(kind, (low, high))
        ranges[kind] = (min(low, known_low), max(high, known_high))
    return tuple(f"{kind} {low:g} {high:g}" for kind, (low, high) in sorted(ranges.items()))


def _scale(deep: Deep, low: float, high: float) -> RGB:
    """Return values from ``low`` to ``high`` as 0 to 255, grey as three equal channels."""
    scaled: NDArray[Any]
    if deep.values.dtype == np.uint16:
        table = _scale_values(np.arange(65536, dtype=np.float64), low, high)
        scaled = table[deep.values]
    else:
        bands: list[RGB] = []
        for band in np.moveaxis(deep.values, 2, 0):
            bands.append(_scale_values(band.astype(np.float64), low, high))
        scaled = np.stack(bands, axis=2)
    if deep.missing is not None:
        scaled[deep.values == deep.missing] = 0
    if deep.is_inverted:
        scaled = 255 - scaled
    if deep.alpha is not None:
        scaled = np.rint(255 - (255.0 - scaled) * deep.alpha).astype(np.uint8)
    if scaled.shape[2] == 1:
        scaled = np.repeat(scaled, 3, axis=2)
    return np.ascontiguousarray(scaled[:, :, :3])


def _scale_values(values: NDArray[np.float64], low: float, high: float) -> RGB:
    finite = np.nan_to_num(values, nan=0.0, posinf=high, neginf=low)
    # Halves do not overflow.
    span = high / 2 - low / 2
    if span <= 0:
        return np.zeros(values.shape, np.uint8)
    shares = (np.clip(finite, low, high) / 2 - low / 2) / span
    return np.rint(shares * 255).astype(np.uint8)


def _remark(pixels: RGB) -> str:
    if np.percentile(pixels, NEARLY) <= DARK:
        return NEARLY_BLACK
    if np.percentile(pixels, 100 - NEARLY) >= BRIGHT:
        return NEARLY_WHITE
    return ""
