"""Two photographs laid over each other: where they differ is found, and what cannot be aligned is said."""

import cv2
import numpy as np
import pytest
from skimage import data

from pairwright.tasks.models import align_images as module
from pairwright.tasks.models.align_images import Aligned, align_images, is_plausible

FIRST = data.astronaut()
PASTED = (60, 350, 140, 420)


def pasted():
    image = FIRST.copy()
    x0, y0, x1, y1 = PASTED
    image[y0:y1, x0:x1] = data.coffee()[100:170, 200:280]
    return image


def corners_near(found, expected, off):
    np.testing.assert_allclose(found, expected, atol=off)


def test_one_changed_place_is_found_in_both_images():
    found = align_images(FIRST, pasted(), min_area=0.001)
    assert isinstance(found, Aligned)
    ((own, other),), (share,) = found.places, found.shares
    corners_near(own, PASTED, 10)
    corners_near(other, PASTED, 10)
    assert share == pytest.approx(80 * 70 / 512**2, rel=0.4)
    assert align_images(FIRST, pasted(), min_area=0.1) == Aligned(places=(), shares=())


def test_another_view_in_another_light_changes_nothing_but_the_place():
    matrix = cv2.getRotationMatrix2D((256, 256), 5, 1.08)
    taken = [
        np.clip(cv2.warpAffine(image, matrix, (512, 512)) * 0.75 + 12, 0, 255).astype(np.uint8)
        for image in (FIRST, pasted())
    ]
    assert align_images(FIRST, taken[0], min_area=0.001) == Aligned(places=(), shares=())
    found = align_images(FIRST, taken[1], min_area=0.001)
    assert isinstance(found, Aligned)
    ((own, other),) = found.places
    corners_near(own, PASTED, 12)
    x0, y0, x1, y1 = PASTED
    moved = np.array([[x0, y0, 1], [x1, y0, 1], [x1, y1, 1], [x0, y1, 1]]) @ matrix.T
    corners_near(other, (*moved.min(axis=0), *moved.max(axis=0)), 14)


BLACK = np.zeros((200, 300, 3), np.uint8)
NOISE = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (FIRST, data.coffee(), module.FEW_MATCHES),
        (FIRST, FIRST[:, ::-1], module.FEW_MATCHES),
        (NOISE, NOISE[::-1], module.FEW_MATCHES),
        (BLACK, BLACK, module.FEW_FEATURES),
        (BLACK, FIRST, module.FEW_FEATURES),
        (FIRST[:1, :1], FIRST[:1, :1], module.FEW_FEATURES),
        (FIRST[:16], FIRST[:, :16], module.FEW_FEATURES),
        (FIRST, FIRST[:200, :200], module.IMPLAUSIBLE),  # the same, more than twice as near
    ],
)
def test_what_cannot_be_aligned_is_said(first, second, why):
    assert align_images(np.ascontiguousarray(first), np.ascontiguousarray(second), min_area=0.001) == why


@pytest.mark.parametrize(
    ("matrix", "plausible"),
    [
        (np.eye(3), True),
        (np.diag([1.9, 1.9, 1]), True),
        (np.diag([2.1, 2.1, 1]), False),
        (np.diag([1, 0.4, 1]), False),
        (np.array([[-1, 0, 100], [0, 1, 0], [0, 0, 1]]), False),  # mirrored
        (np.array([[1, 0, 0], [0, 1, 0], [-0.02, 0, 1]]), False),  # the horizon at x = 50
    ],
)
def test_plausible_homographies(matrix, plausible):
    assert is_plausible(matrix.astype(float), (100, 100), (100, 100)) is plausible
