"""Windows of masks, and patches: against the whole mask, and against other decoders."""

import numpy as np
import pytest

from pairwright.schemas.scene import Mask
from pairwright.tasks.store.images import decode_rgb, encode_png
from pairwright.tasks.store.masks import encode_mask
from pairwright.tasks.store.patches import cut_mask, encode_patch
from pairwright.tasks.store.runs import read_runs


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (40, 3), (3, 40), (31, 33)])
def test_a_cut_mask_is_the_window_of_the_whole_one(size):
    rng = np.random.default_rng(0)
    masks = [rng.random(size) < share for share in (0.02, 0.5, 0.98)] + [np.zeros(size, bool), np.ones(size, bool)]
    for mask in masks:
        for _ in range(20):
            y0, x0 = (int(rng.integers(side)) for side in size)
            y1, x1 = int(rng.integers(y0 + 1, size[0] + 1)), int(rng.integers(x0 + 1, size[1] + 1))
            got = cut_mask(read_runs(encode_mask(mask)), (x0, y0, x1, y1))
            assert got.dtype == bool
            assert np.array_equal(got, mask[y0:y1, x0:x1])


def test_empty_runs_change_nothing():
    mask = Mask(height=2, width=3, counts=(0, 1, 0, 0, 2, 2, 1, 0))
    # By columns: 1 | 0 set, then 2 not, 2 set, 1 not: [[1, 0, 1], [0, 1, 0]].
    assert np.array_equal(cut_mask(read_runs(mask), (0, 0, 3, 2)), [[1, 0, 1], [0, 1, 0]])


def test_patches_keep_every_pixel_and_are_the_same_each_time():
    rng = np.random.default_rng(0)
    rows, columns = np.indices((90, 120))
    slope = np.stack([rows * 2, columns * 2, rows + columns], axis=2).astype(np.uint8)
    for pixels in (slope, rng.integers(0, 256, (90, 120, 3), dtype=np.uint8), slope[3:4, 5:6], slope[::-1, ::2]):
        data = encode_patch(pixels)
        assert np.array_equal(decode_rgb(data), pixels)
        assert encode_patch(pixels.copy()) == data


def test_a_patch_of_a_photograph_is_no_larger_than_an_image():
    rng = np.random.default_rng(0)
    rows, columns = np.indices((200, 300))
    photograph = np.stack([rows / 2 + 50, columns / 3 + 60, (rows + columns) / 4 + 40], axis=2) + rng.normal(
        0, 3, (200, 300, 3)
    )
    pixels = photograph.astype(np.uint8)
    assert len(encode_patch(pixels)) < 1.1 * len(encode_png(pixels))
