"""Boxes and holes on squared paper: what stands in the place of a removed thing, and what grew
there."""

import numpy as np

from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.rejected.inspect_removals import FilledRegion, find_grown, look_for_element

CUP, DOG, SOFA = 0, 1, 2
TAGS = tuple(Tag(name=name, score=0.9, tagger="ram") for name in ("cup", "dog", "sofa"))
PLACE = FilledRegion((100, 50), np.ones((20, 40), dtype=bool))
"""Pixels 100 to 139 across and 50 to 69 down were filled."""


def box(tag, x0, y0, x1, y1, score=0.5):
    return Box(tag=tag, score=score, x0=x0, y0=y0, x1=x1, y1=y1)


def look(before, after, place=PLACE):
    return look_for_element(DOG, place, before=before, after=after)


DOG_THERE = box(DOG, 100, 50, 140, 70, score=0.8)


def test_an_element_is_found_in_its_place_by_its_own_tag():
    others = [box(CUP, 100, 50, 140, 70, score=0.9), box(DOG, 0, 0, 40, 20, score=0.95)]
    assert look([DOG_THERE, *others], others) == (0.8, 0)
    assert look([DOG_THERE, *others], [*others, box(DOG, 98, 50, 140, 70, score=0.4)]) == (0.8, 0.4)
    assert look([], []) == (0, 0)
    assert look([DOG_THERE], [box(DOG, 105, 52, 112, 60, score=0.3)]) == (0.8, 0.3)
    before = [box(DOG, 100, 50, 118, 70, score=0.6), box(DOG, 120, 50, 140, 70, score=0.7)]
    after = [box(DOG, 100, 50, 118, 70, score=0.3), box(DOG, 119, 50, 140, 70, score=0.45)]
    assert look(before, after) == (0.7, 0.45)
    pole, there = (
        FilledRegion((10, 10), np.eye(50, dtype=bool)),
        box(DOG, 10, 10, 60, 60, score=0.6),
    )
    assert look([there], [box(DOG, 12, 12, 60, 60, score=0.5)], pole) == (0.6, 0.5)
    assert look([there], [box(DOG, 40, 40, 140, 140, score=0.5)], pole) == (0.6, 0)
    # Nobody saw it there before: such a box has no reason to be of the pole.
    assert look([], [box(DOG, 12, 12, 60, 60, score=0.5)], pole) == (0, 0)
    beside = box(DOG, 130, 50, 180, 70, score=0.7)  # a fifth of it was filled
    assert look([DOG_THERE, beside], [beside]) == (0.8, 0)


def grown(before, after, least=0.35):
    return find_grown(TAGS, PLACE, before=before, after=after, least=least)


def test_what_was_not_there_beside_the_hole_has_grown():
    new = box(CUP, 105, 52, 120, 68, score=0.6)
    assert grown([DOG_THERE], [new]) == ("cup", 0.6)
    assert grown([DOG_THERE], [new, box(SOFA, 110, 50, 140, 70, score=0.7)]) == ("sofa", 0.7)
    assert grown([DOG_THERE], [new], least=0.61) == ("", 0)
    assert grown([DOG_THERE], []) == ("", 0)
    assert grown([DOG_THERE], [box(CUP, 60, 50, 115, 70, score=0.9)]) == ("", 0)
    assert grown([DOG_THERE], [box(SOFA, 0, 0, 300, 200, score=0.9)]) == ("", 0)
    shown = box(SOFA, 95, 50, 140, 70, score=0.9)
    sliver = box(
        SOFA, 92, 50, 104, 70, score=0.4
    )  # a third of it is in the hole, nine of twelve columns in the new box
    assert grown([DOG_THERE, sliver], [shown]) == ("", 0)
    assert grown([DOG_THERE, box(CUP, 92, 50, 104, 70)], [shown]) == ("sofa", 0.9)
    assert grown([DOG_THERE, box(SOFA, 60, 50, 72, 70)], [shown]) == ("sofa", 0.9)
    assert grown([DOG_THERE, box(SOFA, 100, 50, 140, 70)], [box(SOFA, 100, 50, 140, 70)]) == (
        "sofa",
        0.5,
    )
