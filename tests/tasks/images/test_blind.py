"""Hidden images: nothing of the pair is left in them but their size."""

import numpy as np
import pytest

from pairwright.tasks.images.blind import blind_images
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb, encode_png


def stripes(size=(60, 48), period=4):
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[:, np.arange(size[1]) % period < period // 2] = 255
    return pixels


def test_blurred_images_have_no_edges_but_their_mean() -> None:
    pixels = stripes()
    (blurred,) = blind_images([encode_png(pixels)], "blurred")
    shown = decode_rgb(blurred).astype(float)
    assert shown.shape == pixels.shape
    assert abs(shown.mean() - pixels.mean()) < 3
    assert np.abs(np.diff(shown, axis=1)).max() < 5


def test_blank_images_are_alike_and_the_other_order_keeps_the_bytes() -> None:
    images = [encode_png(stripes(period=period)) for period in (4, 8)]
    first, second = blind_images(images, "blank")
    assert first == second
    assert blind_images(images, "exchanged") == (images[1], images[0])


def test_an_image_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RefusedImageError):
        blind_images([b"no image"], "blank")
