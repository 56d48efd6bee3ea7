"""Boxes and holes on squared paper: what stands in the place of a removed thing, and what grew
there."""

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
LEFT = dog(98, 50, 140, 70, score=0.4)
PART = dog(105, 52, 112, 60, score=0.3)
BESIDE = dog(130, 50, 180, 70, score=0.7)  # a fifth of it was filled
TWO = [dog(100, 50, 118, 70, score=0.6), dog(120, 50, 140, 70, score=0.7)]
TWO_LATER = [dog(100, 50, 118, 70, score=0.3), dog(119, 50, 140, 70, score=0.45)]
THIN = dog(10, 10, 60, 60, score=0.6)
THIN_LATER, LARGE_LATER = dog(12, 12, 60, 60), dog(40, 40, 140, 140)


@pytest.mark.parametrize(
    ("place", "before", "after", "scores"),
    [
        pytest.param(PLACE, [HERE, *OTHERS], OTHERS, (0.8, 0), id="gone"),
        pytest.param(PLACE, [HERE, *OTHERS], [*OTHERS, LEFT], (0.8, 0.4), id="left"),
        pytest.param(PLACE, [], [], (0, 0), id="no boxes"),
        pytest.param(PLACE, [HERE], [PART], (0.8, 0.3), id="a part of it is left"),
        pytest.param(PLACE, TWO, TWO_LATER, (0.7, 0.45), id="two of them"),
        pytest.param(PLACE, [HERE, BESIDE], [BESIDE], (0.8, 0), id="another beside it"),
        pytest.param(POLE, [THIN], [THIN_LATER], (0.6, 0.5), id="thin and left"),
        pytest.param(POLE, [THIN], [LARGE_LATER], (0.6, 0), id="thin and gone"),
        pytest.param(POLE, [], [THIN_LATER], (0, 0), id="thin and not seen before"),
    ],
)
def test_an_element_is_found_in_its_place_by_its_own_tag(place, before, after, scores):
    assert look_for_element(DOG, place, before=before, after=after) == scores


NEW = box(CUP, 105, 52, 120, 68, score=0.6)
BEST = box(SOFA, 110, 50, 140, 70, score=0.7)
MOSTLY_BESIDE = box(CUP, 60, 50, 115, 70, score=0.9)
AROUND = box(SOFA, 0, 0, 300, 200, score=0.9)
SHOWN = box(SOFA, 95, 50, 140, 70, score=0.9)
BEHIND = (92, 50, 104, 70)
"""A third of it is in the hole, nine of its twelve columns are in ``SHOWN``."""


@pytest.mark.parametrize(
    ("before", "after", "least", "grown"),
    [
        pytest.param([], [NEW], 0.35, ("cup", 0.6), id="new"),
        pytest.param([], [NEW, BEST], 0.35, ("sofa", 0.7), id="the best of two"),
        pytest.param([], [NEW], 0.61, ("", 0), id="too weak"),
        pytest.param([], [], 0.35, ("", 0), id="nothing"),
        pytest.param([], [MOSTLY_BESIDE], 0.35, ("", 0), id="mostly beside the hole"),
        pytest.param([], [AROUND], 0.35, ("", 0), id="all around"),
        pytest.param([box(SOFA, *BEHIND)], [SHOWN], 0.35, ("", 0), id="stood behind"),
        pytest.param([box(CUP, *BEHIND)], [SHOWN], 0.35, ("sofa", 0.9), id="another stood behind"),
        pytest.param([box(SOFA, 60, 50, 72, 70)], [SHOWN], 0.35, ("sofa", 0.9), id="stood beside"),
        pytest.param([box(SOFA, *WHOLE)], [box(SOFA, *WHOLE)], 0.35, ("sofa", 0.5), id="in it"),
    ],
)
def test_what_was_not_there_beside_the_hole_has_grown(before, after, least, grown):
    assert find_grown(TAGS, PLACE, before=[HERE, *before], after=after, least=least) == grown
