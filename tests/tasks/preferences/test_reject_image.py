"""Images of a preference with the rejected one in its place."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.rows import Dropped, RejectionRow
from pairwright.tasks.preferences.reject_image import NOT_MADE, reject_image
from pairwright.tasks.store.images import decode_rgb
from tests.fixtures.removals import element_of, noise_row, png, rejection_of, removal_of, without_block

IMAGES = [noise_row(0, size=(48, 40)), noise_row(1, size=(64, 64))]
SHOWN = tuple(row.image for row in IMAGES)
BALL, BLOCK = element_of(IMAGES[1].key, "ball"), (8, 8, 24, 32)
REJECTION = rejection_of("pair", BALL, side=1)
REMOVALS = {BALL.key: removal_of(IMAGES[1], BALL, BLOCK)}


def crop(window: tuple[int, int, int, int], side: int = 0) -> RejectionRow:
    return replace(REJECTION, maker="crop", side=side, element="", window=window, removal_scores=())


def test_the_removal_stands_in_the_place_of_its_image() -> None:
    first, second = reject_image(SHOWN, REJECTION, REMOVALS)
    assert first == SHOWN[0]
    assert np.array_equal(decode_rgb(second), without_block(IMAGES[1], BLOCK))


@pytest.mark.parametrize("rejection", [None, replace(REJECTION, maker="", element="")])
def test_nothing_rejects_nothing(rejection: RejectionRow | None) -> None:
    assert reject_image(SHOWN, rejection, REMOVALS) == ()


def test_a_crop_is_as_large_as_its_image() -> None:
    made, kept = reject_image(SHOWN, crop((8, 16, 40, 32)), {})
    assert kept == SHOWN[1]
    pixels = np.asarray(Image.open(BytesIO(made)))
    assert pixels.shape == (40, 48, 3)
    # Noise in blocks of 8: the window's blocks are 12 wide and 20 high now, and their middles keep their colours.
    before = np.asarray(Image.open(BytesIO(SHOWN[0])))
    for row in range(2):
        for column in range(4):
            middle = pixels[20 * row + 10, 12 * column + 6]
            assert np.array_equal(middle, before[16 + 8 * row + 4, 8 + 8 * column + 4])


@pytest.mark.parametrize(
    ("images", "rejection", "removals", "reason"),
    [
        ((SHOWN[0], SHOWN[1][:-50]), REJECTION, REMOVALS, "truncated image"),
        ((SHOWN[0], b""), REJECTION, REMOVALS, "empty file"),
        (SHOWN, REJECTION, {}, NOT_MADE),
        (SHOWN, REJECTION, {BALL.key: replace(REMOVALS[BALL.key], patch=png(np.zeros((3, 3, 3), np.uint8)))}, NOT_MADE),
        (SHOWN, REJECTION, {BALL.key: replace(REMOVALS[BALL.key], patch=b"no image")}, NOT_MADE),
        (SHOWN, crop((0, 0, 49, 10)), {}, NOT_MADE),
    ],
    ids=["truncated", "empty", "no removal", "small patch", "damaged patch", "outside"],
)
def test_what_cannot_be_made_is_a_reason(images, rejection, removals, reason: str) -> None:
    made = reject_image(images, rejection, removals)
    assert isinstance(made, Dropped)
    assert (made.source_key, made.reason) == ("pair", reason)


def test_an_image_that_is_not_altered_is_not_read() -> None:
    first, _ = reject_image((b"no image", SHOWN[1]), REJECTION, REMOVALS)
    assert first == b"no image"
