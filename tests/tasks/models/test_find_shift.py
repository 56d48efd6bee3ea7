"""Shifts of images with few keypoints: plain panels and repeated parts, drawn with noise."""

import cv2
import numpy as np
import pytest
from skimage import data

from pairwright.tasks.models.align_images import find_homography
from pairwright.tasks.models.find_shift import find_shift
from pairwright.tasks.models.pair_parts import align_pair, whole_pair

SHIFTS = [(30, 20), (-15, 8), (0, 0), (60, -18)]


def panel():
    """Return a plain panel with a disc, a plate and a scratch: too few keypoints."""
    image = np.full((500, 700, 3), 150, np.float32)
    cv2.circle(image, (220, 180), 50, (190, 180, 170), -1, cv2.LINE_AA)
    cv2.rectangle(image, (400, 300), (560, 360), (110, 112, 118), -1)
    cv2.line(image, (100, 400), (300, 430), (120, 120, 120), 3, cv2.LINE_AA)
    return image


def stripes():
    image = np.full((500, 700, 3), 90, np.float32)
    for x in range(0, 700, 24):
        image[:, x : x + 10] = 180
    cv2.circle(image, (350, 250), 60, (30, 30, 30), -1, cv2.LINE_AA)
    return image


def grid():
    image = np.full((500, 700, 3), 90, np.float32)
    for y in range(30, 500, 40):
        for x in range(30, 700, 40):
            image[y : y + 18, x : x + 18] = (200, 190, 120)
    return image


def views(image, shift=(0, 0), size=(420, 560)):
    """Return two photographs, the second camera moved, with a defect in the second."""
    rng = np.random.default_rng(1)
    changed = image.copy()
    changed[230:260, 150:190] = (20, 200, 20)
    x, y = shift
    height, width = size
    first = image[20:440, 60:620]
    second = changed[20 + y : 20 + y + height, 60 + x : 60 + x + width]
    noisy = (part + rng.normal(0, 3, part.shape) for part in (first, second))
    return [np.clip(part, 0, 255).astype(np.uint8) for part in noisy]


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("drawn", [panel, stripes])
def test_shift_of_an_image_with_few_edges(drawn, shift) -> None:
    first, second = views(drawn(), shift)
    assert isinstance(find_homography(first, second), str), "keypoints do not suffice"
    x, y = shift
    np.testing.assert_array_equal(find_shift(first, second), [[1, 0, -x], [0, 1, -y], [0, 0, 1]])


def test_shift_of_a_smaller_second_image() -> None:
    matrix = find_shift(*views(panel(), (12, 9), size=(400, 540)))
    np.testing.assert_array_equal(matrix, [[1, 0, -12], [0, 1, -9], [0, 0, 1]])


def test_equal_parts_all_over_have_no_one_shift() -> None:
    assert find_shift(*views(grid(), (30, 20))) is None


def test_other_images_and_viewpoints_are_no_shift() -> None:
    left, right, _ = data.stereo_motorcycle()
    plain = np.full((420, 560, 3), 120, np.uint8)
    noise = np.random.default_rng(0).integers(110, 130, plain.shape, dtype=np.uint8)
    pairs = [
        (left, right),
        (data.coffee(), data.chelsea()),
        (data.astronaut(), data.rocket()),
        (views(panel())[0], views(stripes())[0]),
        (plain, noise),
        (plain, plain),
    ]
    assert [find_shift(*pair) for pair in pairs] == [None] * len(pairs)


def test_a_plain_panel_is_aligned_by_its_shift() -> None:
    first, second = views(panel(), (30, 20))
    part = align_pair(whole_pair(first, second, None))
    assert not isinstance(part, str)
    assert part.transform == (1, 0, -30, 0, 1, -20, 0, 0, 1)
    assert part.window == (30, 20, 560, 420)
    np.testing.assert_array_equal(part.second, second[:400, :530])
