"""Holes are filled from around them, and nothing else is touched."""

import cv2
import numpy as np
import pytest

from tasks.models.inpainting import RADIUS, OpenCVInpainter

METHODS = ("telea", "navier-stokes")


def disc(shape, centre, radius):
    rows, columns = np.indices(shape)
    return (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2


@pytest.mark.parametrize("method", METHODS)
def test_a_hole_in_one_colour_is_filled_with_it(method):
    image = np.full((60, 80, 3), (10, 120, 240), dtype=np.uint8)
    hole = disc((60, 80), (30, 40), 12)
    spoilt = image.copy()
    spoilt[hole] = (255, 0, 0)
    assert np.abs(OpenCVInpainter(method).fill(spoilt, hole).astype(int) - image).max() <= 4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("centre", [(60, 80), (3, 5), (118, 158)])
def test_the_window_changes_nothing(method, centre):
    image = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)
    hole = disc((120, 160), centre, 9)
    flag = {"telea": cv2.INPAINT_TELEA, "navier-stokes": cv2.INPAINT_NS}[method]
    whole = cv2.inpaint(image, hole.astype(np.uint8), RADIUS, flag)
    got = OpenCVInpainter(method).fill(image, hole)
    assert np.array_equal(got[~hole], image[~hole])
    assert np.array_equal(got, whole)


def test_nothing_to_fill_from_or_to_fill():
    image = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    for hole in (np.zeros((20, 30), dtype=bool), np.ones((20, 30), dtype=bool)):
        got = OpenCVInpainter().fill(image, hole)
        assert np.array_equal(got, image)
        assert got is not image
