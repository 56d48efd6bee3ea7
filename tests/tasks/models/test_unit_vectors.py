"""Vectors at unit length, in 16 bits, with the length that they had."""

import numpy as np
import pytest

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.unit_vectors import to_unit


def test_the_length_is_told_and_taken_out() -> None:
    unit, norm = to_unit(np.array([3, 0, 4], np.float32), "")
    assert unit == (float(np.float16(0.6)), 0.0, float(np.float16(0.8)))
    assert norm == 5.0
    tiny = np.array([3e-30, 4e-30], np.float32)
    unit, norm = to_unit(tiny, "")
    assert unit == (float(np.float16(0.6)), float(np.float16(0.8)))
    assert norm == np.linalg.norm(tiny.astype(np.float64)).astype(np.float32)


def test_what_sees_nothing_is_zero() -> None:
    assert to_unit(np.zeros(3, np.float32), "") == ((0.0, 0.0, 0.0), 0.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_an_error(value: float) -> None:
    with pytest.raises(ModelError, match="image 7"):
        to_unit(np.array([1, value], np.float32), "clip, of image 7")
