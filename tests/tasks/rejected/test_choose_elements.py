"""Which masks are elements: by their share of the image, and each mask once."""

import numpy as np
import pytest

from pairwright.schemas.config import ElementsConfig
from pairwright.schemas.rows import MasksRow
from pairwright.tasks.rejected.choose_elements import choose_elements
from tests.fixtures.removals import as_json, box, tag
from tests.fixtures.rows import row_of

TOO_SMALL, TOO_LARGE = "too small (elements.min_area=0.005)", "too large (elements.max_area=0.5)"
SAME_MASK = "nearly the mask of another tag (elements.max_iou={})"
SIZE = (40, 50)
"""2,000 pixels: 0.5 % are 10 of them, 50 % are 1,000."""


def rectangle(x0, y0, x1, y1):
    mask = np.zeros(SIZE, dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


def masks_row(*masks):
    count = len(masks)
    return row_of(
        MasksRow,
        source="image",
        key="masks",
        tags=tuple(tag("abcdefgh"[n], f"id {n}", score=0.5 + n / 10) for n in range(count)),
        boxes=tuple(box(n, n, 0, 9, 9) for n in (*range(count), 0)),
        masks=tuple(map(as_json, masks)),
        whys=tuple("" if mask.any() else "no pixels" for mask in masks),
    )


def whys(*masks, **settings):
    rows = choose_elements([masks_row(*masks)], ElementsConfig(**settings))
    return [element.why for element in rows]


def test_a_row_says_all_of_its_element() -> None:
    row = masks_row(rectangle(10, 5, 30, 15))
    (element,) = choose_elements([row], ElementsConfig())
    assert (element.source_key, element.subject) == ("masks", "image")
    assert (element.tag, element.tagger, element.tag_score) == ("a", "ram", 0.5)
    assert element.object_ids == ("id 0",)
    assert (element.boxes, element.mask) == (row.boxes, row.masks[0])
    assert element.box == (10, 5, 30, 15)
    assert element.area_share == np.float32(200 / 2000)
    assert element.why == ""


SHARES = {
    "9 pixels": (rectangle(0, 0, 3, 3), TOO_SMALL),
    "10": (rectangle(0, 0, 5, 2), ""),
    "1,000": (rectangle(0, 0, 25, 40), ""),
    "1,040": (rectangle(0, 0, 26, 40), TOO_LARGE),
    "none": (rectangle(0, 0, 0, 0), "no pixels"),
}


@pytest.mark.parametrize(("mask", "why"), SHARES.values(), ids=SHARES)
def test_shares_have_a_range(mask, why) -> None:
    assert whys(mask) == [why]


# 20 x 20 pixels, and the same without one of 20 columns: 0.95 of the union.
WHOLE, LESS = rectangle(10, 10, 30, 30), rectangle(11, 10, 30, 30)
CAR, WHEEL = rectangle(5, 5, 45, 25), rectangle(8, 20, 14, 25)
APART = [CAR, WHEEL, np.roll(WHEEL, 7, axis=1), np.roll(CAR, 14, axis=0)]
# Each is 0.9 of the one before: the last is like the second, which is not kept.
CHAIN = [rectangle(5, 5, right, 25) for right in (35, 33, 31)]
LARGE = rectangle(0, 0, 26, 40)
LARGE_FIRST = [LARGE, LARGE[:, ::-1], rectangle(0, 0, 25, 40)]
NEARLY, NEARER = SAME_MASK.format(0.9), SAME_MASK.format(0.99)


ALIKE = {
    "nearly equal": ([WHOLE, LESS], 0.9, ["", NEARLY]),
    "as much as the limit, not more": ([WHOLE, LESS], 0.95, ["", ""]),
    "equal": ([WHOLE] * 3, 0.99, ["", NEARER, NEARER]),
    "parts and neighbours": (APART, 0.9, [""] * 4),
    "a chain": (CHAIN, 0.9, ["", NEARLY, ""]),
    "after refused ones": (LARGE_FIRST, 0.9, [TOO_LARGE, TOO_LARGE, ""]),
}


@pytest.mark.parametrize(("masks", "limit", "expected"), ALIKE.values(), ids=ALIKE)
def test_of_nearly_equal_masks_one_is_kept(masks, limit, expected) -> None:
    assert whys(*masks, max_iou=limit) == expected
