"""Descriptors of images whose vectors can be derived by hand, and what similarity means on photographs."""

import numpy as np
import pytest

from pairwright.tasks.models.descriptors import ColourLayout, Gradients
from tests.tasks.models.samples import embed

EMBEDDERS = (ColourLayout(), Gradients())


def halves(left, right, side=64):
    image = np.zeros((side, side, 3), dtype=np.uint8)
    image[:, : side // 2], image[:, side // 2 :] = left, right
    return image


def rectangles(seed):
    rng = np.random.default_rng(seed)
    image = np.full((192, 256, 3), 120, dtype=np.uint8)
    for _ in range(6):
        top, left = rng.integers(0, 140), rng.integers(0, 200)
        image[top : top + rng.integers(20, 80), left : left + rng.integers(20, 80)] = rng.integers(0, 255, 3)
    return image


def cosine(embedder, first, second):
    a, b = embed(embedder, [first, second]).astype(np.float64)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_colour_layout_of_a_coloured_corner():
    image = np.full((64, 64, 3), 128, dtype=np.uint8)
    image[:8, :8] = (255, 0, 0)
    vector = embed(ColourLayout(), [image])[0].reshape(8, 8, 3)
    # Red is L 53.24, a 80.09, b 67.20 and grey 128 is L 53.59: the corner differs from the mean by 63/64 of that.
    np.testing.assert_allclose(vector[0, 0, 1:], np.sqrt(np.array([80.09, 67.20]) * 63 / 64), rtol=1e-3)
    np.testing.assert_allclose(vector[5, 5, 1:], -np.sqrt(np.array([80.09, 67.20]) / 64), rtol=1e-2)


@pytest.mark.parametrize(("turned", "bin_"), [(False, 0), (True, 4)])
def test_gradients_of_one_edge(turned, bin_):
    # An upright edge has a level gradient, 0 degrees: bin 0 alone. A level one has 90, half-way between bins 4 and 5.
    image = halves(0, 255, side=128)
    planes = Gradients()._orientations(image.transpose(1, 0, 2) if turned else image)
    totals = planes.sum(axis=(1, 2))
    assert totals[bin_] > 0
    assert set(np.flatnonzero(totals > 1e-3)) == ({0} if not turned else {4, 5})
    assert totals[4] == pytest.approx(totals[5], abs=1e-2)


def test_gradients_keep_all_of_each_pixels_length():
    image = np.random.default_rng(0).integers(0, 255, (128, 128, 3), dtype=np.uint8)
    grey = (image @ [0.299, 0.587, 0.114]).round() / 255
    smooth = np.array([1, 2, 1])
    patches = np.lib.stride_tricks.sliding_window_view(grey, (3, 3))
    across = (patches[:, :, :, 2] - patches[:, :, :, 0]) @ smooth
    down = (patches[:, :, 2] - patches[:, :, 0]) @ smooth
    got = Gradients()._orientations(image).sum(axis=0)[1:-1, 1:-1]
    np.testing.assert_allclose(got, np.hypot(across, down), atol=0.05)


@pytest.mark.parametrize("embedder", EMBEDDERS, ids=lambda embedder: embedder.name)
def test_shapes_and_flat_images(embedder):
    vectors = embed(embedder, [np.full((9, 200, 3), 77, dtype=np.uint8), np.full((500, 3, 3), 0, dtype=np.uint8)])
    assert vectors.shape == (2, len(embed(embedder, [rectangles(1)])[0]))
    assert vectors.dtype == np.float32
    assert np.abs(vectors).max() < 1e-3
    assert embed(embedder, []).shape == (0, len(embed(embedder, [rectangles(1)])[0]))


@pytest.mark.parametrize("embedder", EMBEDDERS, ids=lambda embedder: embedder.name)
def test_light_counts_for_little_and_arrangement_for_much(embedder):
    image, other = rectangles(1), rectangles(2)
    darker = (image * 0.8).astype(np.uint8)
    assert cosine(embedder, image, darker) > 0.97
    assert cosine(embedder, image, image[6:, 6:]) > 0.8
    assert abs(cosine(embedder, image, other)) < 0.5


def test_what_fills_the_whole_image_counts_for_nothing():
    stripes = np.repeat((np.arange(128) // 4 % 2 * 200)[None, :, None], 128, axis=0).astype(np.uint8)
    vector = embed(Gradients(), [np.repeat(stripes, 3, axis=2)])[0].reshape(9, 8, 8)
    # Without the mean taken out, bin 0 of each cell would be 1; only the outer cells, which see the border, differ.
    assert np.abs(vector[:, 2:6, 2:6]).max() < 0.1
