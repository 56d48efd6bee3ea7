"""Embedders' unit vectors; descriptors and hashes whose values can be derived by hand."""

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter
from skimage import data
from skimage.transform import rotate

from pairwright.schemas.errors import ModelError
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.models.descriptors import (
    COLOUR_LAYOUT,
    GRADIENTS,
    describe_gradients,
    find_orientations,
)
from pairwright.tasks.models.embedders import to_unit
from pairwright.tasks.models.perceptual_hash import count_differing_bits, hash_image
from tests.fixtures.pictures import encode
from tests.tasks.models.samples import cosines, embed


@pytest.mark.parametrize(
    ("vector", "unit", "norm"),
    [
        ([3, 0, 4], [0.6, 0.0, 0.8], 5.0),
        ([3e-30, 4e-30], [0.6, 0.8], 5e-30),
        ([0, 0, 0], [0.0, 0.0, 0.0], 0.0),
    ],
)
def test_the_length_is_told_and_taken_out(vector, unit, norm):
    values, length = to_unit(np.array(vector, np.float32), "")
    assert list(values) == np.float16(unit).tolist()
    assert length == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_what_is_no_number_is_an_error(value):
    with pytest.raises(ModelError, match="image 7"):
        to_unit(np.array([1, value], np.float32), "clip, of image 7")


def rectangles(seed):
    rng = np.random.default_rng(seed)
    image = np.full((192, 256, 3), 120, dtype=np.uint8)
    for _ in range(6):
        top, left = rng.integers(0, 140), rng.integers(0, 200)
        bottom, right = top + rng.integers(20, 80), left + rng.integers(20, 80)
        image[top:bottom, left:right] = rng.integers(0, 255, 3)
    return image


def test_colour_layout_of_a_coloured_corner():
    """Red is L 53.24, a 80.09, b 67.20 and grey 128 is L 53.59: the corner differs from the mean
    by 63/64 of that."""
    image = np.full((64, 64, 3), 128, dtype=np.uint8)
    image[:8, :8] = (255, 0, 0)
    layout = embed(COLOUR_LAYOUT, [image])[0].reshape(8, 8, 3)
    red = np.array([80.09, 67.20])
    np.testing.assert_allclose(layout[0, 0, 1:], np.sqrt(red * 63 / 64), rtol=1e-3)
    np.testing.assert_allclose(layout[5, 5, 1:], -np.sqrt(red / 64), rtol=1e-2)


@pytest.mark.parametrize("embedder", [COLOUR_LAYOUT, GRADIENTS], ids=["colours", "gradients"])
def test_light_counts_for_little_and_arrangement_for_much(embedder):
    image, other = rectangles(1), rectangles(2)
    variants = [(image * 0.8).astype(np.uint8), image[6:, 6:], other]
    vectors = embed(embedder, [image, *variants]).astype(np.float64)
    darker, cropped, different = cosines(vectors[1:], vectors[:1])
    assert darker > 0.97
    assert cropped > 0.8
    assert abs(different) < 0.5


def smooth(values, sigma):
    return gaussian_filter(values, sigma, mode="mirror", truncate=4)


def test_gradients_by_their_definition():
    planes = find_orientations(data.chelsea()).astype(np.float64)
    blurred = np.array([smooth(plane, 8) for plane in planes])
    cells = blurred.reshape(9, 8, 16, 8, 16).mean(axis=(2, 4))
    roots = np.sqrt(cells / (smooth(cells.sum(axis=0), 1) + 0.02))
    expected = roots - roots.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(describe_gradients(data.chelsea()), expected.ravel(), atol=1e-5)


def test_hash_by_the_definition_of_the_cosine_transform():
    grey = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    place = np.arange(32)
    waves = np.array([np.cos(np.pi * (2 * place + 1) * number / 64) for number in range(8)])
    waves *= np.where(np.arange(8) == 0, np.sqrt(1 / 32), np.sqrt(2 / 32))[:, None]
    low = waves @ grey.astype(float) @ waves.T
    expected = np.where(low > np.median(low), 0.125, -0.125).ravel()
    np.testing.assert_array_equal(hash_image(np.repeat(grey[:, :, None], 3, axis=2)), expected)


PICTURES = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket()]


def bits_between(first, second):
    first, second = (hash_image(image).astype(np.float16) for image in (first, second))
    return int(count_differing_bits(first[None], second)[0])


@pytest.mark.parametrize("image", PICTURES)
def test_the_same_photograph_stored_otherwise_is_near(image):
    assert bits_between(image, decode_rgb(encode_png(image))) == 0
    assert bits_between(image, decode_rgb(encode(Image.fromarray(image), "JPEG", quality=60))) <= 2
    assert bits_between(image, image[::2, ::2]) <= 4
    assert bits_between(image, (image * 0.8).astype(np.uint8)) <= 4


@pytest.mark.parametrize("number", range(len(PICTURES)))
def test_other_photographs_and_turned_ones_are_far(number):
    image = PICTURES[number]
    turned = rotate(image, 90, preserve_range=True).astype(np.uint8)
    others = [*PICTURES[:number], *PICTURES[number + 1 :], turned]
    assert min(bits_between(image, other) for other in others) > 12


def test_flat_images_are_near_to_nothing():
    flat = np.full((40, 50, 3), 7, dtype=np.uint8)
    assert not hash_image(flat).any()
    assert bits_between(flat, flat) == bits_between(flat, PICTURES[0]) == 32
