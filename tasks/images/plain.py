"""Write images anew that other programs would show otherwise than ``decode_rgb`` does.

A plain image (``is_plain``) keeps its bytes. Any other (turned by EXIF, transparent, more than 8
bits, several frames, CMYK, TIFF, GIF, BMP and others) becomes a PNG of the pixels that models saw:
without loss, so that the rejected image beside it differs where it was changed and nowhere else.
Reads and writes no files.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pairwright.schemas.rows import PreferenceRow, make_key
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, encode_png, is_plain
from pairwright.tasks.images.masks import encode_patch

R = TypeVar("R", bound=PreferenceRow)

PLAIN_MARK = "-plain"
"""End of the key of an image that was written anew: the part before it is the source's key."""
MAX_RECENT = 32
"""Images that were written anew last and are kept: rows that share an image are neighbours."""
DRAWN = (b"\x89PNG", b"GIF8", b"BM", b"II*\0", b"MM\0*")
"""First bytes of formats without loss, whose images often have few colours."""


@dataclass
class PlainImages:
    """Plain forms of the images of an export, with the number and size of those written anew."""

    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of each image that was written anew, by its key."""
    _recent: OrderedDict[str, bytes] = field(default_factory=OrderedDict[str, bytes])

    @property
    def total_bytes(self) -> int:
        """Return the size of all images that were written anew."""
        return sum(self.sizes.values())

    def make_row(self, row: R) -> R:
        """Return a row with plain images; keys of those written anew end in ``PLAIN_MARK``."""
        images, image_keys = self.make_images(row.images, row.image_keys)
        rejected = [self.make_plain(image) for image in row.rejected_images]
        return replace(row, images=images, image_keys=image_keys, rejected_images=tuple(rejected))

    def make_images(
        self, images: Sequence[bytes], keys: Sequence[str]
    ) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
        """Return images in their plain form, and the keys that say which were written anew."""
        plain_images: list[bytes] = []
        plain_keys: list[str] = []
        for image, key in zip(images, keys, strict=True):
            plain = self.make_plain(image, key)
            plain_images.append(plain)
            plain_keys.append(key if plain is image else f"{key}{PLAIN_MARK}")
        return tuple(plain_images), tuple(plain_keys)

    def make_plain(self, data: bytes, key: str = "") -> bytes:
        """Return an image if it is plain or cannot be decoded, else the PNG of its pixels."""
        try:
            if is_plain(data):
                return data
            key = key or make_key(data)
            if key not in self._recent:
                self._recent[key] = write_plain(data)
        except RefusedImageError:
            return data
        self._recent.move_to_end(key)
        plain = self._recent[key]
        self.sizes[key] = len(plain)
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        return plain


def write_plain(data: bytes) -> bytes:
    """Return the PNG of an image's pixels as models see them; ``RefusedImageError``: it has none.

    Photographs are encoded the fast way, which for drawings would give larger files.
    """
    pixels = decode_rgb(data)
    if data.startswith(DRAWN):
        return encode_png(pixels)
    return encode_patch(pixels)
