"""Draw where two pictures of a pair differ: one overlay for both, in which differences glow.

Ours, not a paper's: the difference of a pixel is the distance of its two colours in Lab (CIE76; 1 is hardly seen,
white and black are 100 apart), after a blur that takes off noise. The map goes from dark to light evenly (inferno).
Pictures that differ all over have none: it would say nothing.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.tasks.store.images import RGB

VISIBLE = 10.0
"""Distance of colours from which two pixels are said to differ."""
GREATEST = 60.0
"""Distance that is shown lightest; greater ones look the same."""
MOST_SHARE = 0.4
"""Share of the picture beyond which there is no map."""
SIDE = 320
"""Pixels of the overlay's longer side: blurred things need no more."""
BLUR = 1.5
LEVELS = 64
VEIL, FULL = 150, 235
"""Opacity of 255 where nothing differs, and where most does."""

Floats = NDArray[np.float32]


def draw_heat(first: RGB, second: RGB) -> tuple[bytes, float]:
    """Return the map of two pictures ``(h, w, 3)`` as PNG, and the share of the picture that differs visibly.

    The second is brought to the first's size. The map is empty where the pictures differ all over, or nowhere.
    """
    distance = measure_distance(first, second)
    share = float((distance > VISIBLE).mean())
    return _paint(distance) if 0 < share <= MOST_SHARE else b"", share


def measure_distance(first: RGB, second: RGB) -> Floats:
    """Return the distance of the colours ``(h, w)`` of two pictures, at most ``SIDE`` pixels wide and high."""
    height, width = first.shape[:2]
    scale = min(SIDE / max(height, width), 1.0)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.linalg.norm(_lab(first, size) - _lab(second, size), axis=2).astype(np.float32)


def _lab(image: RGB, size: tuple[int, int]) -> Floats:
    import cv2

    small = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX), np.float32) / np.float32(255)
    return np.asarray(cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2LAB), (0, 0), BLUR), np.float32)


def _paint(distance: Floats) -> bytes:
    heat = np.clip((distance - VISIBLE / 2) / (GREATEST - VISIBLE / 2), 0, 1)
    image = Image.fromarray(np.round(heat * (LEVELS - 1)).astype(np.uint8))
    image.putpalette(list_colours().tobytes())
    opacities = np.linspace(VEIL, FULL, LEVELS).round().astype(np.uint8).tobytes()
    sink = io.BytesIO()
    image.save(sink, format="PNG", optimize=True, transparency=opacities)
    return sink.getvalue()


def list_colours() -> NDArray[np.uint8]:
    """Return the colours of the map ``(LEVELS, 3)``, dark to light."""
    import cv2

    steps = np.linspace(0, 255, LEVELS).round().astype(np.uint8)[:, None]
    return np.asarray(cv2.applyColorMap(steps, cv2.COLORMAP_INFERNO), np.uint8)[:, 0, ::-1]
