"""Crops around holes: where they lie, how large they are, and that every pixel comes back to its place."""

import numpy as np
import pytest

from pairwright.tasks.models.lama.crop_holes import LEAST_STEP, STEP, WASTE, crop_hole, put_back

SIZES = [(240, 320), (320, 240), (375, 501), (501, 375), (97, 1203), (64, 64), (1, 1), (3, 700), (129, 1)]


def picture(height, width):
    """Return an image in which each pixel says where it is."""
    rows, columns = np.indices((height, width))
    return np.stack([rows % 256, columns % 256, (rows // 256) * 16 + columns // 256], axis=2).astype(np.uint8)


def windows_of(height, width):
    """Return windows in the middle, at each border, in each corner, of one pixel, and of all."""
    h, w = max(height // 5, 1), max(width // 5, 1)
    tops, lefts = (0, (height - h) // 2, height - h), (0, (width - w) // 2, width - w)
    around = {(left, top, left + w, top + h) for top in tops for left in lefts}
    return sorted(around | {(0, 0, width, height), (width // 2, height // 2, width // 2 + 1, height // 2 + 1)})


def crop(image, window, **config):
    hole = np.ones((window[3] - window[1], window[2] - window[0]), dtype=bool)
    return crop_hole(image, hole, window, **{"context": 1.0, "max_side": 1 << 14, **config})


@pytest.mark.parametrize("size", SIZES)
def test_a_crop_is_a_part_of_the_image_with_the_hole_in_its_place(size):
    image = picture(*size)
    for window in windows_of(*size):
        made = crop(image, window)
        x0, y0, x1, y1 = window
        height, width = made.shrunk
        assert made.shrunk == made.size  # nothing is shrunk
        top, left = y0 - made.place[0].start, x0 - made.place[1].start
        assert top >= 0
        assert left >= 0
        assert np.array_equal(made.pixels[:height, :width, :3], image[top : top + height, left : left + width])
        hole = np.zeros(size, dtype=np.uint8)
        hole[y0:y1, x0:x1] = 1
        assert np.array_equal(made.pixels[:height, :width, 3], hole[top : top + height, left : left + width])
        # What a network gives of the crop comes back to the same pixels.
        assert np.array_equal(put_back(made, made.pixels[:, :, :3]), image[y0:y1, x0:x1])


@pytest.mark.parametrize("size", SIZES)
def test_crops_are_padded_to_few_sizes_and_little(size):
    for window in windows_of(*size):
        made = crop(picture(*size), window)
        height, width = made.pixels.shape[:2]
        assert height % LEAST_STEP == width % LEAST_STEP == 0
        own = made.size[0] * made.size[1]
        if height % STEP or width % STEP:
            assert height - made.size[0] < LEAST_STEP
            assert width - made.size[1] < LEAST_STEP
        else:
            assert height * width <= WASTE * own


def test_padding_is_simple_lamas():
    # numpy's "symmetric", at the bottom and on the right: 20 x 29 becomes 24 x 32.
    image = picture(20, 29)
    made = crop(image, (5, 5, 10, 10))
    assert made.pixels.shape == (24, 32, 4)
    assert np.array_equal(made.pixels[20:, :29, :3], image[:15:-1])
    assert np.array_equal(made.pixels[:20, 29:, :3], image[:, :25:-1])


def test_context_is_counted_in_sides_and_grows_into_the_image():
    # 100 x 80 in the middle; one side of context: columns 300 to 600, rows 300 to 540; then 320 and 256, evenly.
    made = crop(picture(1000, 1000), (400, 380, 500, 460))
    assert made.size == (256, 320)
    assert (made.place[1].start, made.place[0].start) == (110, 88)
    # None is asked for: there are 64 pixels on each side all the same, 228 x 208, then 256 x 256.
    made = crop(picture(1000, 1000), (400, 380, 500, 460), context=0.0)
    assert made.size == (256, 256)
    # At the border what cannot grow on one side grows on the other.
    made = crop(picture(1000, 1000), (0, 940, 100, 1000))
    assert made.size == (128, 256)
    assert (made.place[1].start, made.place[0].stop) == (0, 128)


@pytest.mark.parametrize("size", [(900, 1400), (1400, 900), (301, 8000), (8000, 33), (1001, 1003)])
def test_large_surroundings_are_shrunk(size):
    image = picture(*size)
    for window in windows_of(*size):
        made = crop(image, window, max_side=256)
        assert max(made.shrunk) <= 256
        assert max(made.pixels.shape[:2]) <= 256
        ratio = max(made.size) / max(made.shrunk)
        assert abs(made.size[0] / ratio - made.shrunk[0]) <= 1
        assert abs(made.size[1] / ratio - made.shrunk[1]) <= 1
        x0, y0, x1, y1 = window
        assert put_back(made, made.pixels[:, :, :3]).shape == (y1 - y0, x1 - x0, 3)


def test_of_a_shrunk_hole_no_pixel_is_seen():
    # Red in the hole, blue around it: a network that saw a trace of red would see what is to be removed.
    image = np.full((1000, 1400, 3), (0, 0, 200), dtype=np.uint8)
    rows, columns = np.indices((1000, 1400))
    hole = (rows - 503) ** 2 + (columns - 711) ** 2 < 333**2
    image[hole] = (255, 0, 0)
    window = (379, 171, 1044, 836)
    made = crop_hole(image, hole[171:836, 379:1044], window, context=1.0, max_side=200)
    outside = made.pixels[: made.shrunk[0], : made.shrunk[1]][made.pixels[: made.shrunk[0], : made.shrunk[1], 3] == 0]
    assert len(outside) > 10000
    assert (outside == (0, 0, 200, 0)).all()
    assert set(np.unique(made.pixels[:, :, 3])) == {0, 1}


def test_a_shrunk_filling_comes_back_to_its_place():
    # A slow slope survives shrinking and growing: what comes back is within a few grey levels of where it was.
    rows, columns = np.indices((1200, 900))
    slope = np.stack([rows // 6, columns // 5, (rows + columns) // 10], axis=2).astype(np.uint8)
    window = (300, 500, 620, 900)
    made = crop(slope, window, max_side=256)
    back = put_back(made, made.pixels[:, :, :3])
    assert np.abs(back.astype(int) - slope[500:900, 300:620]).max() <= 2
