import io

import numpy as np
import pytest
from PIL import Image

from pairwright.tasks.report.write_images import SIDE, draw_heat


def plain(colour, size=(64, 48)):
    return np.full((size[1], size[0], 3), colour, np.uint8)


def opened(png):
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA"))


def test_what_differs_glows_and_the_rest_is_veiled():
    first, second = plain(200), plain(200)
    second[12:36, 16:32] = 0
    png, share = draw_heat(first, second)
    # L falls by 80.6; a blur of 1.5 pixels leaves 10 of it 1.7 pixels beyond each edge: 27.4 x 19.4 of 64 x 48.
    assert share == pytest.approx(27.4 * 19.4 / (64 * 48), abs=0.01)
    shown = opened(png)
    assert shown.shape == (48, 64, 4)
    (light, full), (dark, veil) = ((int(one[:3].sum()), one[3]) for one in (shown[24, 24], shown[2, 2]))
    assert (light > 600, full, dark < 20, veil) == (True, 235, True, 150)
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
