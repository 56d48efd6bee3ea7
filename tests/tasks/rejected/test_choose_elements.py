"""Which masks are elements: by their share of the image, and each mask once."""

import numpy as np
import pytest

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import Box, ElementRow, MasksRow, Tag
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.rejected.choose_elements import choose_elements
from tests.fixtures.rows import row_of

TOO_SMALL, TOO_LARGE = "too small (elements.min_area=0.005)", "too large (elements.max_area=0.5)"
SAME_MASK = "nearly the mask of another tag (elements.max_iou=0.9)"
SIZE = (40, 50)
"""2,000 pixels: 0.5 % are 10 of them, 50 % are 1,000."""


def rectangle(x0, y0, x1, y1):
    mask = np.zeros(SIZE, dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


def masks_row(*masks, whys=None, names="abcdefgh"):
    tags = tuple(
        Tag(name=names[n], score=0.5 + n / 10, tagger="ram", objects=(f"id {n}",))
        for n in range(len(masks))
    )
    boxes = tuple(Box(tag=n, score=0.7, x0=n, y0=0, x1=9, y1=9) for n in (*range(len(masks)), 0))
    whys = whys or tuple("" if mask.any() else "no pixels" for mask in masks)
    encoded = tuple(encode_mask(mask).model_dump_json() for mask in masks)
    return row_of(
        MasksRow, source="image", key="masks", tags=tags, boxes=boxes, masks=encoded, whys=whys
    )


def chosen(*masks, **settings):
    return list(choose_elements([masks_row(*masks)], ElementsConfig(**settings)))


def whys(*masks, **settings):
    return [element.why for element in chosen(*masks, **settings)]


def test_a_row_says_all_of_its_element():
    mask = rectangle(10, 5, 30, 15)
    row = masks_row(mask)
    (element,) = choose_elements([row], ElementsConfig())
    assert isinstance(element, ElementRow)
    assert (element.source_key, element.subject) == ("masks", "image")
    assert (element.tag, element.tagger, element.tag_score, element.object_ids) == (
        "a",
        "ram",
        0.5,
        ("id 0",),
    )
    assert element.boxes == row.boxes
    assert element.box == (10, 5, 30, 15)
    assert element.mask == row.masks[0]
    assert element.area_share == np.float32(200 / 2000)
    assert element.why == ""


@pytest.mark.parametrize(
    ("mask", "why"),
    [
        (rectangle(0, 0, 3, 3), TOO_SMALL),  # 9 pixels
        (rectangle(0, 0, 5, 2), ""),  # 10
        (rectangle(0, 0, 25, 40), ""),  # 1,000
        (rectangle(0, 0, 26, 40), TOO_LARGE),
        (rectangle(0, 0, 50, 40), TOO_LARGE),  # all
        (rectangle(0, 0, 0, 0), "no pixels"),
    ],
)
def test_shares_have_a_range(mask, why):
    assert whys(mask) == [why]


def test_of_nearly_equal_masks_the_first_that_is_not_refused_is_kept():
    # 20 x 20 pixels, and the same without one of 20 columns: 0.95 of the union.
    first, second = rectangle(10, 10, 30, 30), rectangle(11, 10, 30, 30)
    assert whys(first, second) == ["", SAME_MASK]
    assert whys(second, first) == ["", SAME_MASK]
    assert whys(first, second, max_iou=0.95) == ["", ""]  # more than the limit, not as much
    assert whys(first, first, first, max_iou=0.99) == ["", *[SAME_MASK.replace("0.9", "0.99")] * 2]
    car, wheel = rectangle(5, 5, 45, 25), rectangle(8, 20, 14, 25)
    assert whys(car, wheel, np.roll(wheel, 7, axis=1), np.roll(car, 14, axis=0)) == ["", "", "", ""]
    # Of three masks in a row, each 0.9 of the one before, the last is like the second, which is not
    # kept.
    masks = [rectangle(5, 5, 5 + width, 25) for width in (30, 28, 26)]
    assert whys(*masks) == ["", SAME_MASK, ""]
    large = rectangle(0, 0, 26, 40)
    assert whys(large, large[:, ::-1], rectangle(0, 0, 25, 40)) == [TOO_LARGE, TOO_LARGE, ""]
