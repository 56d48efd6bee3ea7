"""Read the header of a TIFF, and the samples of one that Pillow cannot decode.

Pillow reads one band of 12, 16 and 32 bits. More bands, fractions of 16 and 64 bits and signed
bytes need the package tifffile (extra ``tiff``); OpenCV reads colour of 16 bits without it. GeoTIFF
is a TIFF: its georeference is not read. Files may be hostile: sizes are checked before samples are
decompressed, and a strip or tile never expands to more than its own size.
"""

import io
import logging
import math
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from pairwright.tasks.images.refusal import RefusedImageError

Samples = NDArray[Any]
"""``(height, width, bands)`` of any type of number."""

STARTS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
UNSIGNED = 1
SIGNED = 2
FLOAT = 3
WHITE_IS_ZERO = 0
RGB = 2
PALETTE = 3
SEPARATED = 5
LUMA = 6
"""Photometric interpretations, by the TIFF 6.0 specification."""

ALPHA = ((1,), (2,))
"""Meanings of an extra sample that is transparency."""
NO_COMPRESSION = 1
DEFLATE = (8, 32946)
PACKBITS = 32773
MAX_PAGES = 64
NEEDS_TIFFFILE = "needs the package tifffile: python -m pip install 'pairwright[tiff]'"


@dataclass(frozen=True, slots=True)
class TiffHeader:
    """Header of the first page of a TIFF."""

    width: int
    height: int
    bands: int
    bits: int
    sample_format: int
    photometric: int
    extra: tuple[int, ...]
    """Meaning of the samples beyond the colour: 0 unspecified, 1 and 2 alpha."""
    orientation: int
    stated: tuple[float, float] | None
    """Minimum and maximum of the samples, if the file states them."""
    missing: float | None
    """Value of pixels without data (GDAL's tag)."""

    @property
    def is_deep(self) -> bool:
        """Return whether its samples are not unsigned integers of 8 bits or fewer."""
        if self.photometric in (PALETTE, SEPARATED, LUMA):
            return False
        return self.bits > 8 or self.sample_format in (SIGNED, FLOAT)

    @property
    def colours(self) -> int:
        """Return the number of bands of the colour, without extra ones."""
        return 3 if self.photometric == RGB else 1

    @property
    def has_other_bands(self) -> bool:
        """Return whether it has bands that are neither grey, colour nor its transparency."""
        if self.photometric in (PALETTE, SEPARATED, LUMA) or self.photometric > LUMA:
            return False
        further = self.bands - self.colours
        is_transparency = further == 1 and self.extra[:1] in ALPHA
        return further > 0 and not is_transparency


def read_tiff_header(data: bytes) -> TiffHeader | None:
    """Return the header of a TIFF; ``None``: it is none, or its tags cannot be read."""
    if not data.startswith(STARTS):
        return None
    is_big = data[2:4] in (b"+\0", b"\0+")
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(data[: 16 if is_big else 8])
        stream = io.BytesIO(data)
        stream.seek(tags.next)
        tags.load(stream)
        return _make_header(tags)
    except Exception:  # noqa: BLE001 - Pillow raises anything on hostile tags; it opens the file next
        return None


def _make_header(tags: Any) -> TiffHeader:
    bits = tags.get(258, (1,))
    formats = tags.get(339, (UNSIGNED,))
    extra = tags.get(338, ())
    depth = max(bits)
    return TiffHeader(
        width=int(tags[256]),
        height=int(tags[257]),
        bands=int(tags.get(277, 1)),
        bits=int(depth),
        sample_format=int(formats[0]),
        photometric=int(tags.get(262, 1)),
        extra=tuple(extra) if isinstance(extra, tuple) else (extra,),
        orientation=int(tags.get(274, 1)),
        stated=_stated_range(tags, int(depth), int(formats[0])),
        missing=_missing_value(tags.get(42113)),
    )


def _stated_range(tags: Any, bits: int, sample_format: int) -> tuple[float, float] | None:
    """Return the range that tags state; ``None``: none, or only what the type can hold."""
    high = _number(tags.get(341, tags.get(281)))
    low = _number(tags.get(340, tags.get(280, 0)))
    if sample_format == UNSIGNED:
        if high is not None and 0 < high < 2**bits - 1:
            return (low or 0.0, high)
        return (0.0, 2.0**bits - 1) if bits in (10, 12, 14) else None
    if high is None or low is None or not low < high:
        return None
    return (low, high)


def _number(value: Any) -> float | None:
    """Return a tag's number, the largest of several; ``None``: it is no finite number."""
    values = value if isinstance(value, tuple) else (value,)
    numbers = [float(number) for number in values if isinstance(number, int | float)]
    if not numbers or not math.isfinite(max(numbers)):
        return None
    return max(numbers)


def _missing_value(value: Any) -> float | None:
    try:
        number = float(str(value).strip("\0 "))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_tiff_samples(data: bytes, header: TiffHeader) -> Samples:
    """Return all bands of a TIFF, upright; ``RefusedImageError`` if no installed package can."""
    is_grey = header.bands == 1 and header.sample_format in (UNSIGNED, SIGNED, FLOAT)
    if is_grey and header.bits in (12, 16, 32) and not _is_half_float(header):
        with Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
            values = np.asarray(image)  # Pillow applies the orientation
        if header.sample_format == UNSIGNED and header.bits == 32:
            values = values.view(np.uint32)
        return values[:, :, None]
    if find_spec("tifffile") is not None:
        return turn_upright(_read_with_tifffile(data, header), header.orientation)
    if header.photometric == RGB and header.bits == 16 and header.bands in (3, 4):
        return read_with_opencv(data)
    detail = f"{header.bands} bands of {header.bits} bits; {NEEDS_TIFFFILE}"
    raise RefusedImageError("format needs a package", detail)


def _is_half_float(header: TiffHeader) -> bool:
    return header.sample_format == FLOAT and header.bits == 16


def read_page_stack(data: bytes, header: TiffHeader) -> Samples:
    """Return the pages of a TIFF as bands, if each has one band and all have one size."""
    samples = read_tiff_samples(data, header)
    if header.bands > 1 or find_spec("tifffile") is None:
        return samples
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        count = min(len(file.pages), MAX_PAGES)
        shapes = {file.pages[number].shape for number in range(count)}
    if count == 1 or len(shapes) > 1:
        return samples
    pages = [_read_with_tifffile(data, header, page) for page in range(count)]
    return turn_upright(np.concatenate(pages, axis=2), header.orientation)


def _read_with_tifffile(data: bytes, header: TiffHeader, number: int = 0) -> Samples:
    """Return the samples of a page as ``(height, width, bands)``."""
    import tifffile

    logging.getLogger("tifffile").setLevel(logging.CRITICAL)  # it logs every oddity of a file
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page: Any = file.pages[number]
        expected = header.width * header.height * header.bands
        if math.prod(page.shape) != expected:
            raise RefusedImageError("damaged image", f"its samples have the shape {page.shape}")
        _check_segments(page, data)
        values = np.asarray(page.asarray(maxworkers=1))
    if values.ndim == 2:
        return values[:, :, None]
    if str(page.axes).startswith("S"):
        return np.moveaxis(values, 0, 2)
    return values


def _check_segments(page: Any, data: bytes) -> None:
    """Refuse strips and tiles that are larger than the image, or that expand beyond their size."""
    samples = math.prod(page.chunks)
    if samples > 4 * math.prod(page.shape) + (1 << 20):
        raise RefusedImageError("damaged image", f"tiles of {page.chunks} samples")
    if find_spec("imagecodecs") is not None:
        return  # it stops at the size of a segment
    compression = int(page.compression)
    if compression not in (NO_COMPRESSION, PACKBITS, *DEFLATE):
        raise RefusedImageError(
            "format needs a package",
            f"compression {page.compression.name} needs the package imagecodecs: "
            "python -m pip install 'pairwright[tiff]'",
        )
    if compression not in DEFLATE:
        return
    limit = samples * page.dtype.itemsize
    for start, size in zip(page.dataoffsets, page.databytecounts, strict=True):
        inflating = zlib.decompressobj()
        inflating.decompress(data[start : start + size], limit + 1)
        if inflating.unconsumed_tail:
            raise RefusedImageError("damaged image", "a segment expands beyond its size")


def read_with_opencv(data: bytes) -> Samples:
    """Return grey, colour and transparency of an image as OpenCV reads them, in this order."""
    import cv2

    values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if values is None:
        raise RefusedImageError("damaged image", "OpenCV cannot decode it")
    if values.ndim == 2:
        return values[:, :, None]
    order = [2, 1, 0, 3][: values.shape[2]]
    return np.ascontiguousarray(values[:, :, order])


def turn_upright(values: Samples, orientation: int) -> Samples:
    """Return an image ``(height, width, ...)`` with an EXIF orientation, 1 to 8, applied."""
    if orientation >= 5:
        values = np.swapaxes(values, 0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    if orientation in (2, 3, 6, 7):
        values = values[:, ::-1]
    return values
