"""Boxes and holes by hand: what is left of a removed element, and what grew in its place."""

import numpy as np
import pytest

from pairwright.tasks.rejected.inspect_removals import FilledRegion, find_grown, look_for_element
from tests.fixtures.removals import box, tag

CUP, DOG, SOFA = 0, 1, 2
TAGS = (tag("cup"), tag("dog"), tag("sofa"))
PLACE = FilledRegion((100, 50), np.ones((20, 40), dtype=bool))
"""Pixels 100 to 139 across and 50 to 69 down were filled."""
POLE = FilledRegion((10, 10), np.eye(50, dtype=bool))
"""A thin thing, which fills little of its box."""
WHOLE = (100, 50, 140, 70)


def dog(*corners, score=0.5):
    return box(DOG, *corners, score=score)


HERE = dog(*WHOLE, score=0.8)
OTHERS = [box(CUP, *WHOLE, score=0.9), dog(0, 0, 40, 20, score=0.95)]
BESIDE = dog(130, 50, 180, 70, score=0.7)  # a fifth of it was filled
TWO = [dog(100, 50, 118, 70, score=0.6), dog(120, 50, 140, 70, score=0.7)]
TWO_LATER = [dog(100, 50, 118, 70, score=0.3), dog(119, 50, 140, 70, score=0.45)]
THIN = dog(10, 10, 60, 60, score=0.6)
THIN_LATER = dog(12, 12, 60, 60)


LOOKED_AT = {
    "gone": (PLACE, [HERE, *OTHERS], OTHERS, (0.8, 0)),
    "left": (PLACE, [HERE, *OTHERS], [*OTHERS, dog(98, 50, 140, 70, score=0.4)], (0.8, 0.4)),
    "no boxes": (PLACE, [], [], (0, 0)),
    "a part of it is left": (PLACE, [HERE], [dog(105, 52, 112, 60, score=0.3)], (0.8, 0.3)),
    "two of them": (PLACE, TWO, TWO_LATER, (0.7, 0.45)),
    "another beside it": (PLACE, [HERE, BESIDE], [BESIDE], (0.8, 0)),
    "thin and left": (POLE, [THIN], [THIN_LATER], (0.6, 0.5)),
    "thin and gone": (POLE, [THIN], [dog(40, 40, 140, 140)], (0.6, 0)),
    "thin and not seen before": (POLE, [], [THIN_LATER], (0, 0)),
}


@pytest.mark.parametrize(("place", "before", "after", "scores"), LOOKED_AT.values(), ids=LOOKED_AT)
def test_an_element_is_found_in_its_place_by_its_own_tag(place, before, after, scores) -> None:
    assert look_for_element(DOG, place, before=before, after=after) == scores


NEW = box(CUP, 105, 52, 120, 68, score=0.6)
SHOWN = box(SOFA, 95, 50, 140, 70, score=0.9)
BEHIND = (92, 50, 104, 70)
"""A third of it is in the hole, nine of its twelve columns are in ``SHOWN``."""


GROWN = {
    "new": ([], [NEW], 0.35, ("cup", 0.6)),
    "the best of two": ([], [NEW, box(SOFA, 110, 50, 140, 70, score=0.7)], 0.35, ("sofa", 0.7)),
    "too weak": ([], [NEW], 0.61, ("", 0)),
    "nothing": ([], [], 0.35, ("", 0)),
    "mostly beside the hole": ([], [box(CUP, 60, 50, 115, 70, score=0.9)], 0.35, ("", 0)),
    "all around": ([], [box(SOFA, 0, 0, 300, 200, score=0.9)], 0.35, ("", 0)),
    "stood behind": ([box(SOFA, *BEHIND)], [SHOWN], 0.35, ("", 0)),
    "another stood behind": ([box(CUP, *BEHIND)], [SHOWN], 0.35, ("sofa", 0.9)),
    "stood beside": ([box(SOFA, 60, 50, 72, 70)], [SHOWN], 0.35, ("sofa", 0.9)),
    "in it": ([box(SOFA, *WHOLE)], [box(SOFA, *WHOLE)], 0.35, ("sofa", 0.5)),
}


@pytest.mark.parametrize(("before", "after", "least", "grown"), GROWN.values(), ids=GROWN)
def test_what_was_not_there_beside_the_hole_has_grown(before, after, least, grown) -> None:
    assert find_grown(TAGS, PLACE, before=[HERE, *before], after=after, least=least) == grown
