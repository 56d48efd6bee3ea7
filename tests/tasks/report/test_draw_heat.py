import io

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.report.write_images import SIDE, draw_heat, list_colours, measure_distance


def plain(colour, size=(64, 48)):
    return np.full((size[1], size[0], 3), colour, np.uint8)


def opened(png):
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA"))


def test_distances_are_those_of_lab():
    """Black is (0, 0, 0), white (100, 0, 0); sRGB red has L 53.24, a 80.09, b 67.20: 117.3 from black."""
    assert measure_distance(plain(0), plain(255)) == pytest.approx(100, abs=0.1)
    assert measure_distance(plain(0), plain((255, 0, 0))) == pytest.approx(117.3, abs=0.2)
    assert measure_distance(plain(90), plain(90)).max() == 0


def test_what_differs_glows_and_the_rest_is_veiled():
    first, second = plain(200), plain(200)
    second[12:36, 16:32] = 0
    png, share = draw_heat(first, second)
    # L falls by 80.6; a blur of 1.5 pixels leaves 10 of it 1.7 pixels beyond each edge: 27.4 x 19.4 of 64 x 48.
    assert share == pytest.approx(27.4 * 19.4 / (64 * 48), abs=0.01)
    shown = opened(png)
    assert shown.shape == (48, 64, 4)
    assert tuple(shown[24, 24]) == (*list_colours()[-1], 235)
    assert tuple(shown[2, 2]) == (*list_colours()[0], 150)
    rising = list_colours().astype(float) @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(rising) > 0).all()
    assert draw_heat(plain(30), plain(220)) == (b"", 1.0)
    noise = plain(100)
    noise[::2, ::2] = 104
    assert draw_heat(plain(100), noise) == (b"", 0.0)


def test_sizes_may_differ_and_large_ones_become_small():
    first, second = plain(200, (1000, 500)), plain(200, (400, 400))
    second[:100, :100] = 0
    png, share = draw_heat(first, second)
    assert opened(png).shape[:2] == (SIDE // 2, SIDE)
    assert share == pytest.approx(1 / 16, abs=0.01)
    assert len(png) < 4000
    assert draw_heat(plain(0, (1, 1)), plain(255, (1, 1)))[1] == 1.0
