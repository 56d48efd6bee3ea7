"""Scores of removals by the claims that they break, ties, and crops."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.rows import DifferenceRow, RejectionRow
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.rejected.choose_removals import choose_removals, draw_crop
from tests.fixtures.graphs import graph, image_row, pair_row, thing
from tests.fixtures.removals import element_of, inspection_of
from tests.fixtures.rows import row_of

BALLS = (thing("a", "ball", "red"), thing("b", "ball", "red"))
CUBE = thing("c", "cube", "blue")
COUNTED = SceneChange(type="counting", object_ids=("a", "b"))
FIRST, SECOND = graph(*BALLS, CUBE), graph(CUBE, changes=(COUNTED,))
A_RED_BALL, A_CUBE = Selector(shape="ball", colour="red"), Selector(shape="cube")
PAIR = pair_row("first", "second")


def claim(side, kind, selector=None, **fields):
    return Claim(side=side, kind=kind, selector=selector or Selector(), **fields)


def choose(claims, elements, graphs=(FIRST, SECOND)):
    """Choose among elements (name, ids of objects, area) of the images; return scores and row."""
    rows = {
        image: tuple(
            element_of(image, name, objects=tuple(ids), key=name, area=area)
            for name, ids, area in elements.get(image, ())
        )
        for image in ("first", "second")
    }
    text = CLAIMS.dump_json(tuple(claims)).decode()
    images = {image: image_row(image, scene) for image, scene in zip(rows, graphs, strict=True)}
    (row,) = choose_removals(
        [PAIR],
        RejectionsConfig(),
        differences={PAIR.key: row_of(DifferenceRow, source=PAIR.key, key=PAIR.key, claims=text)},
        elements=rows,
        inspected={image: tuple(map(inspection_of, own)) for image, own in rows.items()},
        images=images,
    )
    assert isinstance(row, RejectionRow)
    chosen = [score.removal for score in row.removal_scores if score.chosen]
    assert "".join(chosen) == row.element
    return {score.removal: score.score for score in row.removal_scores}, row


COUNT = claim(0, "count", A_RED_BALL, count=2)
ONE, BOTH, BLUE = ("one", "a", 0.1), ("both", "ab", 0.1), ("cube", "c", 0.1)
THERE = ("there", "c", 0.1)
"""The cube of the second image."""


def test_the_candidate_that_breaks_most_claims_is_chosen() -> None:
    exist = [claim(0, "exists", A_RED_BALL), claim(1, "exists", A_CUBE)]
    claims = [COUNT, *exist, claim(1, "absent", A_RED_BALL)]
    scores, row = choose(claims, {"first": [ONE, BOTH, BLUE], "second": [THERE]})
    # One ball breaks the count; both break count and existence; nobody speaks of the cube.
    assert scores == {"one": 0.25, "both": 0.5, "cube": 0, "there": 0.25}
    assert (row.element, row.side, row.maker, row.reason) == ("both", 0, "removal", "")


def test_claims_that_are_untrue_anyway_do_not_count() -> None:
    claims = [claim(1, "exists", A_RED_BALL), claim(1, "exists", A_CUBE)]
    scores, row = choose(claims, {"first": [BLUE], "second": [THERE]})
    assert scores == {"cube": 0, "there": 1}
    assert (row.element, row.side) == ("there", 1)


def test_a_relation_breaks_with_either_of_its_things() -> None:
    behind = claim(0, "relation", A_CUBE, relation="behind", other=A_RED_BALL)
    far = graph(*BALLS, CUBE.model_copy(update={"depth": "back"}))
    elements = {"first": [BOTH, ("cube", "c", 0.2), ONE]}
    scores, row = choose([behind], elements, (far, SECOND))
    assert scores == {"both": 1, "cube": 1, "one": 0}
    assert row.element == "both"


def test_any_removal_breaks_a_claim_of_no_change() -> None:
    elements = {"first": [ONE], "second": [THERE]}
    scores, row = choose([claim(0, "no_change")], elements, (FIRST, FIRST))
    assert scores == {"one": 1, "there": 1}
    assert row.element == "one"


def test_ties_go_to_the_smaller_area_then_the_lower_key() -> None:
    _, row = choose([COUNT], {"first": [("m", "a", 0.2), ("z", "a", 0.1)]})
    assert row.element == "z"
    _, row = choose([COUNT], {"first": [("z", "a", 0.1), ("m", "a", 0.1)]})
    assert row.element == "m"


def test_nothing_to_choose_from() -> None:
    scores, row = choose([], {"first": [ONE]})
    assert (scores, row.maker) == ({"one": 0}, "")
    assert row.reason == "no removal makes the text fit worse"
    scores, row = choose([], {"first": [ONE]}, (FIRST, None))
    assert (scores, row.reason) == ({}, "no element can be removed")


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(1, 9000), st.integers(2, 9000))
def test_a_crop_is_in_its_image_and_is_not_all_of_it(seed, width, height) -> None:
    window = draw_crop(Random(seed), width, height, area=(0.01, 0.2))
    assert window == draw_crop(Random(seed), width, height, area=(0.01, 0.2))
    x0, y0, x1, y1 = window
    assert 0 <= x0 < x1 <= width
    assert 0 <= y0 < y1 <= height
    wide, high = x1 - x0, y1 - y0
    assert wide * high < width * height
    assert min(wide, high) < 50 or 0.72 < wide / high < 1.38


def test_an_image_of_one_pixel_has_no_crop() -> None:
    assert draw_crop(Random(0), 1, 1, area=(0.01, 0.2)) is None
