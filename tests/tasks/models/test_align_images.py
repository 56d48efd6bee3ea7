"""Aligned photographs: what changed is found, light and noise are not, other places are refused."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image
from skimage import data

from pairwright.tasks.models import align_images as module
from pairwright.tasks.models.align_images import Aligned, align_images

FIRST = data.astronaut()
BOX = (60, 350, 140, 420)
ELSEWHERE = (300, 40, 380, 120)
TURN = cv2.getRotationMatrix2D((256, 256), 5, 1.08)
"""The camera turned by 5 degrees, and 8 % closer."""
NOISE = np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8)
BLACK = np.zeros((200, 300, 3), np.uint8)


def with_patch() -> np.ndarray:
    image = FIRST.copy()
    x0, y0, x1, y1 = BOX
    image[y0:y1, x0:x1] = data.coffee()[100:170, 200:280]
    return image


def in_light(image: np.ndarray, *gains: float) -> np.ndarray:
    return np.clip(image * np.array(gains), 0, 255).astype(np.uint8)


def as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, "JPEG", quality=quality)
    return np.asarray(Image.open(sink).convert("RGB"))


def aligned(first: np.ndarray, second: np.ndarray, min_area: float = 0.001) -> Aligned:
    result = align_images(np.ascontiguousarray(first), second, min_area=min_area)
    assert isinstance(result, Aligned), result
    return result


def test_a_changed_place_is_found() -> None:
    result = aligned(FIRST, with_patch())
    (place,) = result.places
    np.testing.assert_allclose(place.box, BOX, atol=10)
    assert place.share == pytest.approx(80 * 70 / 512**2, rel=0.4)
    for side in (0, 1):
        assert result.changed_share(side, BOX) > 0.9
        assert result.changed_share(side, ELSEWHERE) == 0
    x0, y0, x1, y1 = BOX
    assert result.changed_share(0, (x0, y0, x1 + 80, y1)) == pytest.approx(0.5, abs=0.1)


def test_smaller_places_are_left_out() -> None:
    result = aligned(FIRST, with_patch(), min_area=0.1)
    assert result.places == ()
    assert result.changed_share(0, BOX) == 0


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(FIRST, id="same"),
        pytest.param(in_light(FIRST, 0.6, 0.6, 0.6), id="dim"),
        pytest.param(in_light(FIRST, 1.35, 1.35, 1.35), id="bright"),
        pytest.param(in_light(FIRST, 1.14, 1.0, 0.76), id="warm"),
        pytest.param(as_jpeg(FIRST, 50), id="jpeg"),
        pytest.param(cv2.GaussianBlur(FIRST, (0, 0), 1.8), id="soft"),
        pytest.param(
            in_light(cv2.warpAffine(FIRST, TURN, (512, 512)), 0.75, 0.7, 0.8), id="turned"
        ),
    ],
)
def test_light_noise_and_camera_change_nothing(second) -> None:
    assert aligned(FIRST, second).places == ()
    assert aligned(second, FIRST).places == ()


def test_a_change_is_found_from_another_camera_in_another_light() -> None:
    second = in_light(cv2.warpAffine(with_patch(), TURN, (512, 512)), 0.75, 0.7, 0.8)
    result = aligned(FIRST, second)
    (place,) = result.places
    np.testing.assert_allclose(place.box, BOX, atol=12)
    x0, y0, x1, y1 = BOX
    corners = np.array([[x0, y0, 1], [x1, y0, 1], [x1, y1, 1], [x0, y1, 1]]) @ TURN.T
    turned = (*corners.min(axis=0), *corners.max(axis=0))
    assert result.changed_share(1, turned) > 0.7


def test_sizes_may_differ() -> None:
    second = cv2.resize(with_patch(), (300, 300), interpolation=cv2.INTER_AREA)
    result = aligned(FIRST, second, min_area=0.005)
    (place,) = result.places
    np.testing.assert_allclose(place.box, BOX, atol=12)
    assert result.changed_share(1, tuple(corner * 300 / 512 for corner in BOX)) > 0.8


def test_what_one_image_does_not_show_counts_as_changed() -> None:
    """The second image is the first without its left 100 columns."""
    result = aligned(FIRST, np.ascontiguousarray(FIRST[:, 100:]))
    assert result.places == ()
    assert result.changed_share(0, (0, 200, 90, 300)) == 1
    assert result.changed_share(0, (150, 200, 250, 300)) == 0
    reverse = aligned(FIRST[:, 100:], FIRST)
    assert reverse.changed_share(1, (0, 200, 90, 300)) == 1


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (FIRST, data.coffee(), module.NO_MATCH),
        (FIRST, FIRST[:, ::-1], module.NO_MATCH),
        (NOISE, NOISE[::-1], module.NO_MATCH),
        (BLACK, BLACK, module.TOO_PLAIN),
        (BLACK, FIRST, module.TOO_PLAIN),
        (FIRST[:1, :1], FIRST[:1, :1], module.TOO_PLAIN),
        (FIRST, FIRST[:200, :200], module.NO_OVERLAP),
    ],
)
def test_images_that_cannot_be_aligned_have_a_reason(first, second, why) -> None:
    first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
    assert align_images(first, second, min_area=0.001) == why


def test_images_that_differ_all_over_are_not_one_place() -> None:
    """A strip of the first image is left, enough to align them."""
    second = FIRST.copy()
    second[:, 160:] = (0, 255, 0)
    assert align_images(FIRST, second, min_area=0.001) == module.ALL_OVER
