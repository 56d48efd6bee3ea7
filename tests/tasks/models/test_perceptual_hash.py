"""Perceptual hashes: the transform by its definition, what is near and what is not."""

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from skimage import data
from skimage.transform import rotate

from pairwright.tasks.models.perceptual_hash import PerceptualHash, count_differing_bits
from pairwright.tasks.store.images import decode_rgb, encode_png
from tests.fixtures.pictures import encode

PICTURES = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket()]


def bits_between(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> int:
    one, other = (PerceptualHash().prepare(image).astype(np.float16) for image in (first, second))
    return int(count_differing_bits(one[None], other)[0])


def test_hash_by_the_definition_of_the_cosine_transform() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    image = np.repeat(grey[:, :, None], 3, axis=2)
    place = np.arange(32)
    waves = np.array([np.cos(np.pi * (2 * place + 1) * number / 64) for number in range(8)])
    scale = np.where(np.arange(8) == 0, np.sqrt(1 / 32), np.sqrt(2 / 32))
    low = (scale[:, None] * waves) @ grey.astype(float) @ (scale[:, None] * waves).T
    expected = np.where(low > np.median(low), 0.125, -0.125).ravel()
    np.testing.assert_array_equal(PerceptualHash().prepare(image), expected)


def test_cosine_counts_bits() -> None:
    one = np.full(64, 0.125, dtype=np.float16)
    for number in (0, 1, 5, 32, 64):
        other = one.copy()
        other[:number] = -0.125
        assert count_differing_bits(other[None], one).tolist() == [number]
        assert float(one.astype(np.float64) @ other.astype(np.float64)) == 1 - number / 32


@pytest.mark.parametrize("picture", range(len(PICTURES)))
def test_the_same_photograph_stored_otherwise_is_near(picture: int) -> None:
    image = PICTURES[picture]
    assert bits_between(image, decode_rgb(encode_png(image))) == 0
    assert bits_between(image, decode_rgb(encode(Image.fromarray(image), "JPEG", quality=60))) <= 2
    assert bits_between(image, image[::2, ::2]) <= 4
    assert bits_between(image, (image * 0.8).astype(np.uint8)) <= 4


def test_other_photographs_and_turned_ones_are_far() -> None:
    for place, image in enumerate(PICTURES):
        assert min(bits_between(image, other) for other in PICTURES[:place] + PICTURES[place + 1 :]) > 12
        assert bits_between(image, rotate(image, 90, preserve_range=True).astype(np.uint8)) > 12


def test_flat_images_are_near_to_nothing() -> None:
    flat = np.full((40, 50, 3), 7, dtype=np.uint8)
    assert not PerceptualHash().prepare(flat).any()
    assert bits_between(flat, flat) == bits_between(flat, PICTURES[0]) == 32
