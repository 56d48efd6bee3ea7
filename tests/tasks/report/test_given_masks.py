"""Change masks that a source gave, on the pages of its pairs."""

import re

import numpy as np
from PIL import Image

import pairwright as pw
from pairwright.tasks.images.decode import encode_png
from tests.fixtures.layouts import put
from tests.fixtures.pictures import picture


def test_a_given_mask_is_shown_over_both_images(tmp_path) -> None:
    source = tmp_path / "source"
    changed = np.zeros((48, 64), np.uint8)
    changed[10:20, 30:50] = 255
    put(source, "before/a.png", picture(1, size=(64, 48)))
    put(source, "after/a.png", picture(2, size=(64, 48)))
    put(source, "label/a.png", encode_png(changed))
    album = pw.build(source, out=str(tmp_path / "out"), until="mining")
    album.report()
    report = tmp_path / "out/report"
    page = (report / "pairs-1.html").read_text()
    (overlays,) = re.findall(r'data-changed="([^"]+)"', page)
    first, second = overlays.split("|")
    for overlay in (first, second):
        with Image.open(report / overlay) as image:
            shown = np.asarray(image)[:, :, 3] > 0
        np.testing.assert_array_equal(shown, changed > 0)
