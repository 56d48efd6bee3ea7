"""Distances are those of SciPy, in windows as in whole images, however many threads OpenCV has."""

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.tasks.rejected.measure_distance import measure_distance


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"], autouse=True)
def threads(request):
    """Let OpenCV have as many as a build's workers do (one), or more."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(request.param)
    yield
    cv2.setNumThreads(before)


def test_distances_are_exact_at_every_call():
    rng = np.random.default_rng(0)
    mask = np.zeros((300, 400), dtype=bool)
    mask[100:180, 150:300] = rng.random((80, 150)) < 0.01
    wanted = distance_transform_edt(~mask).astype(np.float32)
    for _ in range(20):
        assert np.array_equal(measure_distance(mask), wanted)
        assert np.array_equal(measure_distance(mask[90:190, 140:310]), wanted[90:190, 140:310])


def test_straight_edges_are_whole_numbers_of_pixels_away():
    mask = np.zeros((5, 9), dtype=bool)
    mask[:, 2] = True
    assert measure_distance(mask).tolist() == [[2, 1, 0, 1, 2, 3, 4, 5, 6]] * 5


def test_of_an_empty_mask_everything_is_far_away():
    assert (measure_distance(np.zeros((3, 4), dtype=bool)) > 1000).all()
    assert not measure_distance(np.ones((3, 4), dtype=bool)).any()
