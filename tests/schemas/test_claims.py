"""Claims about small scene graphs whose truth is plain to see."""

import pytest

from pairwright.schemas import claims
from pairwright.schemas.claims import (
    CLAIMS,
    Claim,
    Selector,
    all_hold,
    holds,
    is_no_change,
    may_hold,
    stands,
)
from pairwright.schemas.scene import SceneChange
from tests.fixtures.graphs import LIGHTS, graph, thing

RED = thing("a", "ball", "red", column="left", depth="front")
BLUE = thing("b", "cube", "blue", column="right", depth="back")
MUG = thing("c", "mug", "white", column="right", depth="middle", box=(210, 60, 240, 90))
FIRST = graph(RED, BLUE, MUG)
SECOND = graph(
    RED, MUG, light=LIGHTS[1], changes=(SceneChange(type="disappearance", object_id="b"),)
)
PAIR = (FIRST, SECOND)
BALL, CUBE = Selector(shape="ball"), Selector(shape="cube")


@pytest.mark.parametrize(
    ("claim", "true"),
    [
        (Claim(side=0, kind="exists", selector=CUBE), True),
        (Claim(side=1, kind="exists", selector=CUBE), False),
        (Claim(side=1, kind="absent", selector=CUBE), True),
        (Claim(side=0, kind="absent", selector=CUBE), False),
        (Claim(side=0, kind="count", count=3), True),
        (Claim(side=1, kind="count", count=3), False),
        (Claim(side=0, kind="count", selector=Selector(colour="red", size="small"), count=1), True),
        (
            Claim(side=0, kind="count", selector=Selector(colour="red", size="large"), count=1),
            False,
        ),
        (Claim(side=0, kind="relation", selector=BALL, relation="left of", other=CUBE), True),
        (Claim(side=0, kind="relation", selector=CUBE, relation="left of", other=BALL), False),
        (Claim(side=0, kind="relation", selector=CUBE, relation="right of", other=BALL), True),
        (Claim(side=0, kind="relation", selector=BALL, relation="behind", other=BALL), False),
        (Claim(side=0, kind="light", value=LIGHTS[0]), True),
        (Claim(side=1, kind="light", value=LIGHTS[0]), False),
        (Claim(side=0, kind="place", value="a room corner"), False),
        (Claim(side=0, kind="no_change"), False),
    ],
)
def test_a_claim_holds_or_not(claim, true):
    assert holds(claim, PAIR) is true


def test_where_things_stand_is_open_unless_the_opposite_is_clear():
    mug = Selector(shape="mug")
    reversed_, aside = (
        Claim(side=0, kind="relation", selector=CUBE, relation=relation, other=mug)
        for relation in ("in front of", "left of")
    )
    assert not may_hold((reversed_,), PAIR)  # it stands behind
    assert (all_hold((aside,), PAIR), may_hold((aside,), PAIR)) == (False, True)
    assert not may_hold((aside, Claim(side=1, kind="exists", selector=CUBE)), PAIR)


def test_viewpoint_light_and_the_same_change_on_both_sides_are_no_change():
    moved = graph(
        RED,
        BLUE,
        MUG,
        light=LIGHTS[1],
        changes=(SceneChange(type="illumination"), SceneChange(type="viewpoint")),
    )
    assert claims.content_changes(moved) == frozenset()
    assert is_no_change((FIRST, moved))
    assert not is_no_change(PAIR)
    assert not is_no_change((FIRST, graph(RED, BLUE, MUG, world="other")))
    assert is_no_change((SECOND, SECOND.model_copy(update={"photograph": 2})))


def test_claims_survive_their_column():
    said = (
        Claim(side=1, kind="relation", selector=BALL, relation="behind", other=CUBE),
        Claim(side=0, kind="count"),
    )
    assert CLAIMS.validate_json(CLAIMS.dump_json(said, exclude_defaults=True)) == said


@pytest.mark.parametrize(
    ("box", "depth", "relations"),
    [
        ((100, 40, 140, 70), "back", {"in front of"}),
        ((120, 40, 160, 70), "back", {"in front of"}),
        ((121, 40, 161, 70), "back", set()),
        ((100, 40, 140, 70), "front", set()),
        ((100, 40, 140, 90), "back", set()),
        ((150, 40, 190, 70), "back", {"left of"}),
        ((126, 40, 166, 70), "front", {"left of"}),
        ((119, 40, 180, 70), "front", set()),
        ((90, 40, 240, 70), "front", set()),
        ((0, 40, 60, 70), "back", {"right of"}),
    ],
    ids=[
        "ahead",
        "by half",
        "by less",
        "same depth",
        "not lower",
        "aside",
        "just",
        "middle within",
        "wide",
        "right",
    ],
)
def test_relations_can_be_seen(box, depth, relations):
    """Of a thing 40 pixels wide at 100 to 140, whose middle is 120, in a picture of 256."""
    near = thing("a", box=(100, 50, 140, 80))
    far = thing("b", "cube", box=box, depth=depth)
    found = {a for a in ("left of", "right of", "in front of", "behind") if stands(near, a, far)}
    assert found == relations
    mirrored = {"left of": "right of", "right of": "left of", "in front of": "behind"}
    assert {a for a in mirrored.values() if stands(far, a, near)} == {
        mirrored[a] for a in relations
    }
