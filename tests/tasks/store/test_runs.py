"""What is measured of run lengths is what the pixels say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask
from pairwright.tasks.store.masks import encode_mask
from pairwright.tasks.store.runs import overlap_at_most, overlap_of, read_runs

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
def test_areas_boxes_and_overlaps_are_those_of_the_pixels(masks):
    first, second = map(runs, masks)
    both, either = (masks[0] & masks[1]).sum(), (masks[0] | masks[1]).sum()
    assert first.area == masks[0].sum()
    assert first.share == masks[0].mean()
    assert first.box == box_of(masks[0])
    assert overlap_of(first, second) == overlap_of(second, first) == both / max(either, 1)
    assert overlap_at_most(first, second) >= overlap_of(first, second)


def test_by_hand():
    first = runs(np.array([[0, 1, 1], [0, 1, 0]], dtype=bool))  # columns 00, 11, 10: a run over the foot of a column
    assert (first.starts.tolist(), first.ends.tolist()) == ([2], [5])
    assert (first.area, first.box) == (3, (1, 0, 3, 2))
    second = runs(np.array([[0, 0, 1], [1, 0, 1]], dtype=bool))
    assert overlap_of(first, second) == 1 / 5
    assert overlap_of(second, runs(np.zeros((2, 3), dtype=bool))) == 0


def test_empty_runs_are_left_out():
    found = read_runs(Mask(height=2, width=2, counts=(1, 0, 1, 2, 0, 0)))
    assert (found.starts.tolist(), found.ends.tolist()) == ([2], [4])


@pytest.mark.parametrize("counts", [(3,), (2, 3), (5, -1), (-1, 5)])
def test_runs_that_do_not_fill_the_mask_are_refused(counts):
    with pytest.raises(ValidationError, match="2 x 2"):
        read_runs(Mask(height=2, width=2, counts=counts))
