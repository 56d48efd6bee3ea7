"""The edge along a rim: by hand where distances are whole numbers, and of discs."""

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.tasks.rejected.measure_removals import measure_distance, measure_rim

HEIGHT, WIDTH, EDGE = 64, 120, 40
MASK = np.zeros((HEIGHT, WIDTH), dtype=bool)
MASK[:, :EDGE] = True
"""The left of the image: a pixel in column c is c - 39 pixels away from it."""
AWAY = np.arange(WIDTH) - EDGE + 1
NONE = np.zeros((HEIGHT, WIDTH), dtype=bool)


def columns(values):
    """Return a grey image whose columns have these values."""
    return np.broadcast_to(np.asarray(values)[None, :, None], (HEIGHT, WIDTH, 3)).astype(np.uint8)


def rim(pixels, mask=MASK, *, dilate=5, feather=3):
    return measure_rim(pixels, mask, dilate=dilate, feather=feather)


def weight(dilate=5, feather=3):
    """Return the weight of the filling by column: 1 in the dilated mask, then falling to 0."""
    return np.clip((dilate + feather + 1 - AWAY) / (feather + 1), 0, 1)


@pytest.mark.parametrize(("offset", "expected"), [(0, 0), (8, 1), (16, 2), (40, 5)])
def test_a_step_in_colour(offset, expected) -> None:
    # Columns 5 to 9 away have 4/4, 3/4, 2/4, 1/4 and 0/4 of the offset: the means of two, less
    # those of the next two,
    # differ by half of it. That is compared with 4 levels, since there is nothing else around.
    assert rim(columns(100 + offset * weight())) == expected
    assert rim(columns(100 - offset * weight())) == expected


def test_a_seam_is_compared_with_the_edges_around() -> None:
    # Without dilation and feather the last column of the filling has all of the offset, the next
    # one none.
    assert rim(columns(100 + 20 * weight(0, 0)), dilate=0, feather=0) == 5
    pixels = columns(100 + 0 * AWAY).copy()
    pixels[..., 0] = 100 + 40 * weight()
    assert rim(pixels) == pytest.approx(5 / 3**0.5, abs=1e-4)
    around = np.where(AWAY > 25, 40, 0)
    assert rim(columns(100 + 40 * weight() + around)) == 0.5
    assert rim(columns(100 + around)) == 0
    assert rim(columns(100 + np.where((AWAY > 19) & (AWAY < 25), 60, 0))) == 0


@pytest.mark.parametrize("bright", [60, -60])
def test_what_a_tight_mask_leaves_is_a_halo(bright) -> None:
    # Two columns of the thing stand just outside of the hole, which ends 8 pixels away.
    assert rim(columns(100 + np.where((AWAY == 10) | (AWAY == 11), bright, 0))) == 15


def test_edges_that_cross_the_rim_are_none() -> None:
    rows, there = np.indices((HEIGHT, WIDTH))
    straight = np.repeat(np.where(rows < 30, 60, 200)[:, :, None], 3, axis=2).astype(np.uint8)
    assert rim(straight) == 0
    slanting = np.repeat(np.where(rows + there < 90, 60, 200)[:, :, None], 3, axis=2)
    assert rim(slanting.astype(np.uint8)) < 0.5


@pytest.mark.parametrize(("arcs", "expected"), [(3, 0), (5, 15)])
def test_a_halo_follows_most_of_the_rim(arcs, expected) -> None:
    # Eight arcs of eight rows: the median is that of the larger part.
    pixels = columns(np.full(WIDTH, 100)).copy()
    pixels[: arcs * 8, EDGE + 9 : EDGE + 11] = 160
    assert rim(pixels) == expected


@pytest.mark.parametrize(
    "mask",
    [
        NONE,
        ~NONE,
        np.ones((1, 1), bool),
        np.eye(3, dtype=bool),
    ],
)
def test_what_cannot_be_measured_is_zero(mask) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (*mask.shape, 3), dtype=np.uint8)
    for dilate, feather in ((0, 0), (5, 3), (40, 9)):
        assert measure_rim(pixels, mask, dilate=dilate, feather=feather) == 0


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request):
    """Let OpenCV have as many as a build's workers do (one), or more."""
    before = cv2.getNumThreads()
    cv2.setNumThreads(request.param)
    yield
    cv2.setNumThreads(before)


@pytest.mark.usefixtures("threads")
def test_distances_are_exact_at_every_call() -> None:
    rng = np.random.default_rng(0)
    mask = np.zeros((300, 400), dtype=bool)
    mask[100:180, 150:300] = rng.random((80, 150)) < 0.01
    wanted = distance_transform_edt(~mask).astype(np.float32)
    for _ in range(20):
        assert np.array_equal(measure_distance(mask), wanted)
        assert np.array_equal(measure_distance(mask[90:190, 140:310]), wanted[90:190, 140:310])
