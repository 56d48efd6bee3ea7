"""Holes are filled from around them, and nothing else is touched."""

import pickle

import cv2
import numpy as np
import pytest

from pairwright.tasks.models.inpainting import RADIUS, OpenCVInpainter

METHODS = {"telea": cv2.INPAINT_TELEA, "navier-stokes": cv2.INPAINT_NS}
NOISE = np.random.default_rng(0).integers(0, 255, (120, 160, 3), dtype=np.uint8)


def disc(shape, centre, radius):
    rows, columns = np.indices(shape)
    return (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2


def fill(inpainter, image, hole, window=None):
    """Fill the hole by way of its window; return the whole image."""
    if window is None:
        lines, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
        window = (columns[0], lines[0], columns[-1] + 1, lines[-1] + 1)
    x0, y0, x1, y1 = window
    (filled,) = inpainter.fill([inpainter.prepare(image, hole[y0:y1, x0:x1], window)])
    made = image.copy()
    made[y0:y1, x0:x1] = filled
    return made


@pytest.mark.parametrize("method", METHODS)
def test_a_hole_in_one_colour_is_filled_with_it(method):
    image = np.full((60, 80, 3), (10, 120, 240), dtype=np.uint8)
    hole = disc((60, 80), (30, 40), 12)
    spoilt = image.copy()
    spoilt[hole] = (255, 0, 0)
    assert np.abs(fill(OpenCVInpainter(method), spoilt, hole).astype(int) - image).max() <= 4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("centre", [(60, 80), (3, 5), (118, 158)])
@pytest.mark.parametrize("window", [None, (0, 0, 160, 120)])
def test_the_window_changes_nothing(method, centre, window):
    hole = disc((120, 160), centre, 9)
    whole = cv2.inpaint(NOISE, hole.astype(np.uint8), RADIUS, METHODS[method])
    got = fill(OpenCVInpainter(method), NOISE, hole, window)
    assert np.array_equal(got[~hole], NOISE[~hole])
    assert np.array_equal(got, whole)


def test_nothing_to_fill_from_or_to_fill():
    image = NOISE[:20, :30]
    for hole in (np.zeros((20, 30), dtype=bool), np.ones((20, 30), dtype=bool)):
        got = fill(OpenCVInpainter(), image, hole, (0, 0, 30, 20))
        assert np.array_equal(got, image)
        assert not np.shares_memory(got, image)


def test_what_is_prepared_can_be_sent_to_another_process():
    inpainter, hole = OpenCVInpainter("navier-stokes"), disc((120, 160), (60, 80), 9)
    sent = pickle.loads(pickle.dumps(inpainter.prepare(NOISE, hole, (0, 0, 160, 120))))
    (got,) = pickle.loads(pickle.dumps(inpainter)).fill([sent])
    assert np.array_equal(got, fill(inpainter, NOISE, hole))
