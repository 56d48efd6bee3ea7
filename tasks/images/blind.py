"""Images that show a model nothing of a pair: what it still says of them is what it expects.

Reads and writes no files.
"""

from collections.abc import Sequence

import numpy as np

from pairwright.schemas.writing import BlindCondition
from pairwright.tasks.images.decode import RGB, decode_rgb, encode_png

GREY = 127
BLUR_SHARE = 6
"""The short side of an image divided by this is the deviation of the blur, in pixels."""


def blind_images(images: Sequence[bytes], condition: BlindCondition) -> tuple[bytes, ...]:
    """Return images as a blind model sees them: blank, blurred, or in the other order.

    Blank and blurred ones are PNG, as large as the images. Raises ``RefusedImageError`` for an
    image that cannot be decoded.
    """
    if condition == "exchanged":
        return tuple(images[::-1])
    blinded: list[bytes] = []
    for image in images:
        pixels = decode_rgb(image)
        if condition == "blurred":
            blinded.append(encode_png(blur(pixels)))
        else:
            blinded.append(encode_png(np.full_like(pixels, GREY)))
    return tuple(blinded)


def blur(pixels: RGB) -> RGB:
    """Return pixels so blurred that only large areas of one colour are left."""
    from PIL import Image, ImageFilter

    deviation = min(pixels.shape[:2]) / BLUR_SHARE
    image = Image.fromarray(np.asarray(pixels)).filter(ImageFilter.GaussianBlur(deviation))
    return np.asarray(image)
