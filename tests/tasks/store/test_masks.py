import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask
from pairwright.tasks.store.masks import decode_mask, encode_mask


def test_runs_by_hand_go_down_the_columns():
    mask = np.array([[0, 1, 0], [0, 1, 1]], dtype=bool)
    # Columns: 00, 11, 01.
    assert encode_mask(mask) == Mask(height=2, width=3, counts=(2, 2, 1, 1))
    assert np.array_equal(decode_mask(Mask(height=2, width=3, counts=(2, 2, 1, 1))), mask)


def test_a_mask_that_starts_set_has_an_empty_run_first():
    assert encode_mask(np.array([[1, 0]], dtype=bool)).counts == (0, 1, 1)


@pytest.mark.parametrize(("value", "counts"), [(True, (0, 12)), (False, (12,))])
def test_full_and_empty(value, counts):
    mask = np.full((3, 4), value)
    assert encode_mask(mask).counts == counts
    assert np.array_equal(decode_mask(encode_mask(mask)), mask)


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.booleans()))
def test_there_and_back(mask):
    encoded = encode_mask(mask)
    assert sum(encoded.counts) == mask.size
    assert sum(encoded.counts[1::2]) == mask.sum()
    assert np.array_equal(decode_mask(encoded), mask)


@pytest.mark.parametrize("counts", [(3,), (2, 3), (5, -1), (-1, 5)])
def test_runs_that_do_not_fill_the_mask_are_refused(counts):
    with pytest.raises(ValidationError, match="2 x 2"):
        decode_mask(Mask(height=2, width=2, counts=counts))
