"""Which halves say that nothing changed, and which only sound like it."""

import pytest

from pairwright.schemas.no_change import says_no_change

NO_CHANGE = [
    "the same scene with no visible change",
    "no change",
    "no differences from the first image",
    "the exact same image",
    "the very same scene",
    "exactly the same scene",
    "the same photograph",
    "The same image as the first, with nothing added, taken away or moved",
    "unchanged",
    "identical to the first image",
    "no noticeable difference at all",
    "the same scene, in which no object has changed",
    "the scene without any alterations whatsoever",
    "nothing changed in any way",
]
SOMETHING = [
    "a car",
    "the same scene",
    "the same setting again",
    "the same scene with a car",
    "the same scene but with no car",
    "no change in the colour of the car",
    "no other change",
    "the unchanged street with a new car",
    "the same scene with changes",
    "the same image with one object removed",
    "a different image",
    "not the same image",
    "not identical to the first image",
    "no longer the same image",
    "nothing",
    "no objects",
    "an image without any objects",
    "no identical objects",
    "2 identical images",
    "",
    "any objects that were removed",
    "objects, any that taken",
]


@pytest.mark.parametrize("half", NO_CHANGE)
def test_no_change_is_said(half):
    assert says_no_change(half)


@pytest.mark.parametrize("half", SOMETHING)
def test_no_change_is_not_said(half):
    assert not says_no_change(half)
