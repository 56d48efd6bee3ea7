"""Random crops: as large as the range says, of a moderate aspect, inside the image, and the same each time."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.tasks.rejected.draw_crop import draw_crop

AREA = (0.01, 0.2)


def test_crops_are_as_large_and_as_wide_as_they_should_be() -> None:
    windows = [draw_crop(Random(seed), 1200, 900, area=AREA) for seed in range(400)]
    sides = [(x1 - x0, y1 - y0) for x0, y0, x1, y1 in filter(None, windows)]
    shares = [wide * high / (1200 * 900) for wide, high in sides]
    aspects = [wide / high for wide, high in sides]
    assert len(sides) == 400
    # Drawn evenly from 1 % to 20 %: half of them above 10.5 %, give or take.
    assert 0.0099 < min(shares) < 0.02
    assert 0.19 < max(shares) < 0.2005
    assert 160 < sum(share > 0.105 for share in shares) < 240
    assert 0.74 < min(aspects) < 0.77
    assert 1.3 < max(aspects) < 1.35
    assert 160 < sum(aspect > 1 for aspect in aspects) < 240


def test_crops_are_everywhere() -> None:
    windows = [draw_crop(Random(seed), 120, 90, area=AREA) for seed in range(400)]
    hit = {(x, y) for x0, y0, x1, y1 in filter(None, windows) for x in range(x0, x1) for y in range(y0, y1)}
    assert {0, 119} <= {x for x, _ in hit}
    assert {0, 89} <= {y for _, y in hit}
    assert len(hit) > 0.95 * 120 * 90


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 9000), st.integers(1, 9000))
def test_a_crop_is_in_its_image_and_is_not_all_of_it(seed: int, width: int, height: int) -> None:
    window = draw_crop(Random(seed), width, height, area=AREA)
    assert window == draw_crop(Random(seed), width, height, area=AREA)
    if window is None:
        assert (width, height) == (1, 1)
        return
    x0, y0, x1, y1 = window
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    assert (x1 - x0) * (y1 - y0) < width * height
    if min(x1 - x0, y1 - y0) >= 50:
        assert 0.72 < (x1 - x0) / (y1 - y0) < 1.38


@pytest.mark.parametrize("size", [(8000, 100), (100, 8000)])
def test_in_a_panorama_the_crop_is_smaller_not_longer(size: tuple[int, int]) -> None:
    for seed in range(50):
        window = draw_crop(Random(seed), *size, area=AREA)
        assert window is not None
        wide, high = window[2] - window[0], window[3] - window[1]
        assert max(wide, high) <= 134
        assert min(wide, high) >= 70


def test_a_crop_of_everything_is_none() -> None:
    assert draw_crop(Random(0), 64, 64, area=(1.0, 1.0)) != (0, 0, 64, 64)
    assert draw_crop(Random(0), 1, 1, area=AREA) is None
