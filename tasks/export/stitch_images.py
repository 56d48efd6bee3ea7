"""Put images side by side in one, for forms that have one image per row. Pure; no image is scaled."""

from collections.abc import Sequence

import numpy as np

from pairwright.tasks.store.images import RGB, decode_rgb, encode_png

GAP = 16
"""White pixels between two images."""
WHITE = 255


def stitch_images(images: Sequence[bytes]) -> bytes:
    """Return a PNG of the images from left to right, their upper edges in line, white between and below.

    Raises:
        RefusedImageError: one does not decode.
    """
    shown = [decode_rgb(image) for image in images]
    height = max(pixels.shape[0] for pixels in shown)
    columns: list[RGB] = []
    for pixels in shown:
        columns += [_white(height, GAP)] if columns else []
        columns.append(np.concatenate([pixels, _white(height - pixels.shape[0], pixels.shape[1])]))
    return encode_png(np.concatenate(columns, axis=1))


def _white(height: int, width: int) -> RGB:
    return np.full((height, width, 3), WHITE, dtype=np.uint8)
