"""Scores derived by hand from small graphs."""

import pytest

from pairwright.schemas.claims import CLAIMS, Claim, Selector
from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.rows import DifferenceRow, RejectionRow
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.rejected.choose_removals import choose_removals
from pairwright.tasks.rejected.score_by_graphs import score_by_graphs
from tests.fixtures.graphs import graph, image_row, pair_row, thing
from tests.fixtures.removals import element_of, inspection_of

BALLS = (thing("a", "ball", "red"), thing("b", "ball", "red"), thing("c", "cube", "blue"))
FIRST, SECOND = graph(*BALLS), graph(BALLS[2], changes=(SceneChange(type="counting", object_ids=("a", "b")),))
RED_BALL = Selector(shape="ball", colour="red")
CUBE = Selector(shape="cube")
PAIR = pair_row("first", "second")
CONFIG = RejectionsConfig()


def claims(*made):
    return CLAIMS.dump_json(made).decode()


def difference(text):
    words = {"text": "", "first_half": "", "second_half": "", "verbs": (), "finish_reason": "stop", "model": ""}
    names = {"key": PAIR.key, "source_key": PAIR.key, "subject": PAIR.key}
    return DifferenceRow(**names, attempts=1, claims=text, no_change=False, **words)


def choose(text, *elements, graphs=(FIRST, SECOND)):
    """Choose among elements of either image: (image, name, object ids, area)."""
    by_image = {"first": (), "second": ()}
    for image, name, ids, *area in elements:
        by_image[image] += (element_of(image, name, objects=ids, area=area[0] if area else 0.1, key=name),)
    checks = {image: tuple(inspection_of(row) for row in rows) for image, rows in by_image.items()}
    images = dict(
        zip(("first", "second"), (image_row("first", graphs[0]), image_row("second", graphs[1])), strict=True)
    )
    tables = {"differences": {PAIR.key: difference(text)}, "elements": by_image, "inspected": checks, "images": images}
    (row,) = choose_removals([PAIR], CONFIG, **tables)
    assert isinstance(row, RejectionRow)
    assert [one.removal for one in row.removal_scores if one.chosen] == ([row.element] if row.element else [])
    return {(one.side, one.removal): one.score for one in row.removal_scores}, row


def test_the_candidate_that_breaks_most_claims_is_chosen():
    text = claims(
        Claim(side=0, kind="count", selector=RED_BALL, count=2),
        Claim(side=0, kind="exists", selector=RED_BALL),
        Claim(side=1, kind="exists", selector=CUBE),
        Claim(side=1, kind="absent", selector=RED_BALL),
    )
    first = [("first", "one ball", ("a",)), ("first", "both balls", ("a", "b")), ("first", "the cube", ("c",))]
    got, row = choose(text, *first, ("second", "cube", ("c",)))
    # One ball breaks the count; both break count and existence; the first image's cube is not spoken of.
    assert got == {(0, "one ball"): 0.25, (0, "both balls"): 0.5, (0, "the cube"): 0, (1, "cube"): 0.25}
    assert (row.element, row.side, row.maker, row.reason) == ("both balls", 0, "removal", "")


def test_only_claims_that_are_true_count():
    text = claims(
        Claim(side=1, kind="exists", selector=RED_BALL),
        Claim(side=1, kind="exists", selector=CUBE),
    )
    got, row = choose(text, ("first", "other", ("c",)), ("second", "cube", ("c",)))
    assert got == {(0, "other"): 0, (1, "cube"): 1}
    assert (row.element, row.side) == ("cube", 1)


def test_a_claim_that_speaks_of_what_is_left_holds():
    text = claims(Claim(side=0, kind="exists", selector=RED_BALL))
    got, row = choose(text, ("first", "one ball", ("a",)))
    assert got == {(0, "one ball"): 0.0}
    assert (row.maker, row.reason) == ("", "no removal makes the text fit worse")


def test_relations_break_with_either_end():
    relation = Claim(side=0, kind="relation", selector=CUBE, relation="behind", other=RED_BALL)
    near = [item.model_copy(update={"depth": "back"}) if item.id == "c" else item for item in BALLS]
    first = [("first", "balls", ("a", "b")), ("first", "cube", ("c",), 0.2), ("first", "ball", ("b",))]
    got, row = choose(claims(relation), *first, graphs=(graph(*near), SECOND))
    assert got == {(0, "balls"): 1, (0, "cube"): 1, (0, "ball"): 0}
    assert row.element == "balls"


def test_any_removal_ends_no_change():
    text = claims(Claim(side=0, kind="no_change"))
    got, row = choose(text, ("first", "x", ("a",)), ("second", "y", ("c",)), graphs=(FIRST, FIRST))
    assert got == {(0, "x"): 1, (1, "y"): 1}
    assert row.element == "x"


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        ([("m", 0.2), ("z", 0.1)], "z"),
        ([("z", 0.1), ("m", 0.1)], "m"),
    ],
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


def test_images_without_graphs_have_no_scores():
    images = (image_row("first", FIRST), image_row("second", None))
    assert score_by_graphs(difference("[]"), images, [(0, element_of("first", "x", objects=("a",)))]) == []
    got, row = choose("[]", ("first", "x", ("a",)), graphs=(FIRST, None))
    assert (got, row.maker) == ({}, "")
