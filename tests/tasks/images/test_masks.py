import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.images.masks import (
    cut_mask,
    decode_mask,
    encode_mask,
    encode_patch,
    overlap_of,
    read_runs,
)


def test_runs_by_hand_go_down_the_columns() -> None:
    mask = np.array([[0, 1, 0], [0, 1, 1]], dtype=bool)
    # Columns: 00, 11, 01.
    assert encode_mask(mask) == Mask(height=2, width=3, counts=(2, 2, 1, 1))
    assert np.array_equal(decode_mask(Mask(height=2, width=3, counts=(2, 2, 1, 1))), mask)


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.booleans()))
def test_there_and_back(mask) -> None:
    encoded = encode_mask(mask)
    assert sum(encoded.counts) == mask.size
    assert sum(encoded.counts[1::2]) == mask.sum()
    assert np.array_equal(decode_mask(encoded), mask)


@pytest.mark.parametrize("counts", [(3,), (2, 3), (5, -1)])
def test_runs_that_do_not_fill_the_mask_are_refused(counts) -> None:
    with pytest.raises(ValidationError, match="2 x 2"):
        decode_mask(Mask(height=2, width=2, counts=counts))


@pytest.mark.parametrize("size", [(1, 1), (40, 3), (31, 33)])
def test_a_cut_mask_is_the_window_of_the_whole_one(size) -> None:
    rng = np.random.default_rng(0)
    for share in (0, 0.02, 0.5, 0.98, 1):
        mask = rng.random(size) < share
        for _ in range(20):
            y0, x0 = (int(rng.integers(side)) for side in size)
            y1, x1 = int(rng.integers(y0 + 1, size[0] + 1)), int(rng.integers(x0 + 1, size[1] + 1))
            got = cut_mask(read_runs(encode_mask(mask)), (x0, y0, x1, y1))
            assert got.dtype == bool
            assert np.array_equal(got, mask[y0:y1, x0:x1])


def test_patches_keep_every_pixel_and_are_the_same_each_time() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.indices((90, 120))
    slope = np.stack([rows * 2, columns * 2, rows + columns], axis=2).astype(np.uint8)
    noise = rng.integers(0, 256, (90, 120, 3), dtype=np.uint8)
    for pixels in (slope, noise, slope[3:4, 5:6], slope[::-1, ::2]):
        data = encode_patch(pixels)
        assert np.array_equal(decode_rgb(data), pixels)
        assert encode_patch(pixels.copy()) == data


def test_a_patch_of_a_photograph_is_no_larger_than_an_image() -> None:
    rng = np.random.default_rng(0)
    rows, columns = np.indices((200, 300))
    slopes = np.stack([rows / 2 + 50, columns / 3 + 60, (rows + columns) / 4 + 40], axis=2)
    pixels = (slopes + rng.normal(0, 3, (200, 300, 3))).astype(np.uint8)
    assert len(encode_patch(pixels)) < 1.1 * len(encode_png(pixels))


MASKS = array_shapes(min_dims=2, max_dims=2, max_side=9).flatmap(
    lambda shape: st.tuples(*[arrays(bool, shape, elements=st.booleans())] * 2)
)


def runs(mask):
    return read_runs(encode_mask(mask))


def box_of(mask):
    if not mask.any():
        return (0, 0, 0, 0)
    lines, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return (columns[0], lines[0], columns[-1] + 1, lines[-1] + 1)


@given(MASKS)
def test_areas_boxes_and_overlaps_are_those_of_the_pixels(masks) -> None:
    first, second = map(runs, masks)
    both, either = (masks[0] & masks[1]).sum(), (masks[0] | masks[1]).sum()
    assert first.area == masks[0].sum()
    assert first.share == masks[0].mean()
    assert first.box == box_of(masks[0])
    assert overlap_of(first, second) == overlap_of(second, first) == both / max(either, 1)
