"""Give images to served models as data URLs: the pixels that ``decode_rgb`` gives, in a budget.

A server decodes files by its own rule. A file that has to look the same under any rule (RGB or grey, 8 bits, upright,
opaque, one frame) and fits the budget is sent as it is; any other is decoded here, shrunk and encoded anew. Needs
Pillow.
"""

import base64
import io
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b

import numpy as np
from PIL import Image

from pairwright.tasks.store.images import RGB, decode_rgb, encode_png, is_plain

SHORTEST = 28
"""Pixels of each side at least: smaller ones are less than one token of Qwen2-VL."""
ELONGATED = 199
"""Most that one side may be of the other: Qwen2-VL refuses 200 and more."""
LONGEST = 65_500
"""Pixels of a JPEG's side at most."""
SMALL = 65_536
"""Images of up to so many pixels, and those of so few colours as drawings have, are sent as PNG."""
FEW_COLOURS = 4096

_DECODING = threading.Semaphore(4)  # images of 40 million pixels are 120 MB each


class Urls:
    """Keep the URLs that were used last, up to a number of bytes: a pair asks for its images several times."""

    def __init__(self, most_bytes: int) -> None:
        """Keep nothing yet."""
        self.most_bytes = most_bytes
        self.size_bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._making: dict[str, Future[str]] = {}

    def get(self, key: str, make: Callable[[], str]) -> str:
        """Return what is kept under the key, or make it; who asks meanwhile waits for that."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            others = self._making.get(key)
            mine = self._making.setdefault(key, Future())
        return others.result() if others else self._make(key, make, mine)

    def _make(self, key: str, make: Callable[[], str], future: Future[str]) -> str:
        try:
            made = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            future.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._kept[key] = made
            self.size_bytes += len(made)
            while self.size_bytes > self.most_bytes:
                self.size_bytes -= len(self._kept.popitem(last=False)[1])
        future.set_result(made)
        return made


_URLS = Urls(most_bytes=128 << 20)


def image_url(data: bytes, pixels: int) -> str:
    """Return an image of at most ``pixels`` (784 or more) pixels as a data URL; any thread may call.

    Raises:
        RefusedImageError: the bytes do not decode.
    """
    key = f"{blake2b(data, digest_size=16).hexdigest()} {pixels}"
    return _URLS.get(key, partial(_url, data, pixels))


def _url(data: bytes, pixels: int) -> str:
    with _DECODING:
        rgb = decode_rgb(data)  # also of files that are sent as they are: a server would refuse a damaged one later
        height, width = rgb.shape[:2]
        size = _fitting(width, height, pixels)
        if size != (width, height) or not is_plain(data):
            data = _encoded(rgb, size)
    return f"data:{_media_type(data)};base64,{base64.b64encode(data).decode()}"


def _fitting(width: int, height: int, pixels: int) -> tuple[int, int]:
    """Return the size at which an image is sent: its shape is kept, unless it is too narrow for the model."""
    short, long = sorted((width, height))
    scale = max(min(1.0, math.sqrt(pixels / (short * long))), SHORTEST / short)
    short = max(SHORTEST, int(short * scale))
    long = max(SHORTEST, min(int(long * scale), pixels // short, ELONGATED * short, LONGEST))
    return (short, long) if width <= height else (long, short)


def _encoded(rgb: RGB, size: tuple[int, int]) -> bytes:
    image = Image.fromarray(rgb)
    if image.size != size:
        image = image.resize(size, Image.Resampling.LANCZOS)
    if image.width * image.height <= SMALL or image.getcolors(FEW_COLOURS):
        return encode_png(np.asarray(image))
    sink = io.BytesIO()
    image.save(sink, format="JPEG", quality=95, subsampling=0)
    return sink.getvalue()


def _media_type(data: bytes) -> str:
    if data.startswith(b"\xff\xd8"):
        return "image/jpeg"
    return "image/png" if data.startswith(b"\x89PNG") else "image/webp"
