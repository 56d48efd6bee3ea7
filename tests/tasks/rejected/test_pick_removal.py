"""Scores of removals by the claims that they break, ties, and crops."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.rows import DifferenceRow, RejectionRow
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.rejected.choose_removals import (
    CheckedRemoval,
    choose_removals,
    draw_crop,
    score_by_graphs,
)
from tests.fixtures.graphs import graph, image_row, pair_row, thing
from tests.fixtures.removals import element_of, inspection_of
from tests.fixtures.rows import row_of

BALLS = (thing("a", "ball", "red"), thing("b", "ball", "red"), thing("c", "cube", "blue"))
FIRST, SECOND = (
    graph(*BALLS),
    graph(BALLS[2], changes=(SceneChange(type="counting", object_ids=("a", "b")),)),
)
RED_BALL = Selector(shape="ball", colour="red")
CUBE = Selector(shape="cube")
PAIR = pair_row("first", "second")
CONFIG = RejectionsConfig()


def claims(*made):
    return CLAIMS.dump_json(made).decode()


def difference(text):
    return row_of(DifferenceRow, source=PAIR.key, key=PAIR.key, claims=text)


def choose(text, *elements, graphs=(FIRST, SECOND)):
    """Choose among elements of either image: (image, name, object ids, area)."""
    by_image = {"first": (), "second": ()}
    for image, name, ids, *area in elements:
        by_image[image] += (
            element_of(image, name, objects=ids, area=area[0] if area else 0.1, key=name),
        )
    checks = {image: tuple(inspection_of(row) for row in rows) for image, rows in by_image.items()}
    images = dict(
        zip(
            ("first", "second"),
            (image_row("first", graphs[0]), image_row("second", graphs[1])),
            strict=True,
        )
    )
    tables = {
        "differences": {PAIR.key: difference(text)},
        "elements": by_image,
        "inspected": checks,
        "images": images,
    }
    (row,) = choose_removals([PAIR], CONFIG, **tables)
    assert isinstance(row, RejectionRow)
    assert [one.removal for one in row.removal_scores if one.chosen] == (
        [row.element] if row.element else []
    )
    return {(one.side, one.removal): one.score for one in row.removal_scores}, row


def test_the_candidate_that_breaks_most_claims_is_chosen():
    text = claims(
        Claim(side=0, kind="count", selector=RED_BALL, count=2),
        Claim(side=0, kind="exists", selector=RED_BALL),
        Claim(side=1, kind="exists", selector=CUBE),
        Claim(side=1, kind="absent", selector=RED_BALL),
    )
    first = [
        ("first", "one ball", ("a",)),
        ("first", "both balls", ("a", "b")),
        ("first", "the cube", ("c",)),
    ]
    got, row = choose(text, *first, ("second", "cube", ("c",)))
    # One ball breaks the count; both break count and existence; the first image's cube is not
    # spoken of.
    assert got == {
        (0, "one ball"): 0.25,
        (0, "both balls"): 0.5,
        (0, "the cube"): 0,
        (1, "cube"): 0.25,
    }
    assert (row.element, row.side, row.maker, row.reason) == ("both balls", 0, "removal", "")


def test_true_claims_relations_and_no_change_break():
    text = claims(
        *(Claim(side=1, kind="exists", selector=selector) for selector in (RED_BALL, CUBE))
    )
    got, row = choose(text, ("first", "other", ("c",)), ("second", "cube", ("c",)))
    assert got == {(0, "other"): 0, (1, "cube"): 1}
    assert (row.element, row.side) == ("cube", 1)
    relation = Claim(side=0, kind="relation", selector=CUBE, relation="behind", other=RED_BALL)
    near = [item.model_copy(update={"depth": "back"}) if item.id == "c" else item for item in BALLS]
    first = [
        ("first", "balls", ("a", "b")),
        ("first", "cube", ("c",), 0.2),
        ("first", "ball", ("b",)),
    ]
    got, row = choose(claims(relation), *first, graphs=(graph(*near), SECOND))
    assert got == {(0, "balls"): 1, (0, "cube"): 1, (0, "ball"): 0}
    assert row.element == "balls"
    text = claims(Claim(side=0, kind="no_change"))
    got, row = choose(text, ("first", "x", ("a",)), ("second", "y", ("c",)), graphs=(FIRST, FIRST))
    assert got == {(0, "x"): 1, (1, "y"): 1}
    assert row.element == "x"


@pytest.mark.parametrize(
    ("candidates", "expected"), [([("m", 0.2), ("z", 0.1)], "z"), ([("z", 0.1), ("m", 0.1)], "m")]
)
def test_ties_go_to_the_smaller_area_then_to_the_lower_key(candidates, expected):
    text = claims(Claim(side=0, kind="count", selector=RED_BALL, count=2))
    _, row = choose(text, *(("first", key, ("a",), area) for key, area in candidates))
    assert row.element == expected


def test_nothing_to_choose_from():
    got, row = choose("[]")
    assert (got, row.reason) == ({}, "no element can be removed")
    got, row = choose("[]", ("first", "x", ("a",)))
    assert (got, row.maker) == ({(0, "x"): 0}, "")
    images = (image_row("first", FIRST), image_row("second", None))
    element = element_of("first", "x", objects=("a",))
    candidate = CheckedRemoval(0, element, inspection_of(element))
    assert not list(score_by_graphs(difference("[]"), images, [candidate]))
    got, row = choose("[]", ("first", "x", ("a",)), graphs=(FIRST, None))
    assert (got, row.maker) == ({}, "")


AREA = (0.01, 0.2)


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
