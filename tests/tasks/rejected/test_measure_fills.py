"""Fills and their surroundings: by hand on plain images, and of a ball on a photograph."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import skimage
from PIL import Image
from scipy.ndimage import gaussian_filter1d

from pairwright.schemas.config import InspectionConfig
from pairwright.tasks.rejected.inspect_removals import inspect_removals
from pairwright.tasks.rejected.measure_fills import UNMEASURED, measure_fill
from pairwright.tasks.rejected.measure_removals import RemovalCrop, measure_distance
from tests.bench.removal_fills import BAD, DILATE, FEATHER, GOOD, Filled, Removal, hole_of
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import disc, element_of, extent, removal_of

SIZE = (160, 160)
BALL = disc(80, 80, 26, SIZE)
LEFT, RIM = "its colour is left along the rim", "halo along the rim"
REASONS = {
    "Telea": {"smoother than around"},
    "Navier-Stokes": {"smoother than around"},
    "blur of the surroundings": {"smoother than around", RIM},
    "20 levels off": {"lighter or darker than around", RIM},
    "3 pixels of the thing, mask too tight": {LEFT},
    "5 pixels of the thing, mask too tight": {LEFT},
    "3 pixels of the thing, in the hole": {LEFT},
    "5 pixels of the thing, in the hole": {LEFT},
}


def measure(before, after, mask=BALL):
    crop = RemovalCrop(
        corner=(0, 0),
        before=before,
        after=after,
        mask=mask,
        distance=measure_distance(mask),
    )
    return measure_fill(crop, dilate=DILATE, feather=FEATHER)


def ball_on(pixels):
    """Return pixels with a shiny blue ball on them, its outline smoothed as a camera does."""
    rows, columns = np.indices(SIZE)
    shine = 90 * np.exp(-((rows - 70) ** 2 + (columns - 72) ** 2) / 200)
    ball = np.stack([30 + shine, 60 + shine, 150 + shine], axis=2)
    weight = cv2.GaussianBlur(BALL.astype(np.float32), (0, 0), 0.7)[:, :, None]
    return np.rint(pixels + weight * (ball - pixels)).astype(np.uint8)


@pytest.fixture(scope="module")
def coffee():
    """Return the photograph of a cup on a table."""
    path = Path(skimage.__file__).parent / "data" / "coffee.png"
    return np.array(Image.open(path).convert("RGB"))


@pytest.fixture
def removal(coffee):
    """Return a ball on the table."""
    table = coffee[240:400, 430:590]
    return Removal("coffee", ball_on(table), table, BALL)


@pytest.fixture
def cup(coffee):
    """Return the part of the photograph that shows the cup."""
    return coffee[40:200, 200:360]


def inspect(filled):
    image = photograph(filled.before)
    element = element_of(image.key, "ball", mask=filled.mask)
    window = extent(hole_of(filled.mask))
    row = removal_of(image, element, window, altered=filled.after, dilate=DILATE, feather=FEATHER)
    (inspected,) = inspect_removals([row], InspectionConfig(), images={image.key: image})
    return inspected


@pytest.mark.parametrize("kind", [kind for kind in GOOD if kind != "the shadow carried on"])
def test_good_fills_of_a_photograph_pass(removal, kind) -> None:
    inspected = inspect(GOOD[kind](removal, np.random.default_rng(0)))
    assert inspected.why == ""
    assert inspected.texture > 0.6
    assert inspected.shift < 6
    assert inspected.left < 0.2


@pytest.mark.parametrize("kind", REASONS)
def test_bad_fills_of_a_photograph_are_refused(removal, kind) -> None:
    inspected = inspect(BAD[kind](removal, np.random.default_rng(0)))
    assert not inspected.passed
    assert inspected.why.split(" (")[0] in REASONS[kind]


def test_a_copy_of_another_part_is_refused(removal, cup) -> None:
    filling = np.where(hole_of(BALL)[:, :, None], cup, removal.original)
    assert not inspect(Filled(removal.before, filling, BALL)).passed


def grey(level):
    return np.full((*SIZE, 3), level, np.uint8)


def test_a_plain_fill_that_is_lighter_is_shifted() -> None:
    # The left of the image is the mask: a pixel in column c is c - 59 pixels away from it.
    away = np.arange(SIZE[1]) - 59
    mask = np.broadcast_to(away <= 0, SIZE)
    weight = np.clip((9 - away) / 4, 0, 1)
    pixels = np.rint(100 + 40 * np.broadcast_to(weight[None, :, None], (*SIZE, 3)))
    # Smoothed over 2 pixels, from the middle of the last three rings of the fill to 7 pixels
    # farther out.
    smooth = dict(zip(away, 40 * gaussian_filter1d(weight, 2), strict=True))
    measured = measure(grey(100), pixels.astype(np.uint8), mask)
    assert measured.shift == pytest.approx(smooth[4] - smooth[11], abs=0.5)
    assert measure(ball_on(grey(100)), grey(100)).shift == 0


def test_noise_in_the_fill_is_a_share_of_that_around() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 20, (*SIZE, 3))
    inside = hole_of(BALL)[:, :, None]
    for share in (0.25, 0.5, 1.0):
        pixels = np.clip(128 + np.where(inside, share * noise, noise), 0, 255).astype(np.uint8)
        assert measure(ball_on(pixels), pixels).texture == pytest.approx(share, rel=0.12)


def test_an_element_that_stays_is_left_and_a_removed_one_is_not() -> None:
    plain = grey(100)
    before = ball_on(plain)
    assert measure(before, before).left == pytest.approx(1, abs=0.05)
    assert measure(before, plain).left == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("mask", [np.zeros(SIZE, bool), np.ones(SIZE, bool)], ids=["none", "all"])
def test_a_mask_without_a_rim_is_not_measured(mask) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (*SIZE, 3), dtype=np.uint8)
    assert measure(pixels, pixels, mask) == UNMEASURED
