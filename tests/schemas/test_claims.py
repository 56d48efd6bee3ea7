"""Claims about small scene graphs whose truth is plain to see."""

import pytest

from schemas.claims import CLAIMS, Claim, Selector, all_hold, content_changes, holds, is_no_change
from schemas.scene import SceneChange
from tests.fixtures.graphs import LIGHTS, graph, thing

RED = thing("a", "ball", "red", column="left", depth="front")
BLUE = thing("b", "cube", "blue", column="right", depth="back")
FIRST = graph(RED, BLUE)
SECOND = graph(RED, light=LIGHTS[1], changes=(SceneChange(type="disappearance", object_id="b"),))
PAIR = (FIRST, SECOND)
BALL, CUBE = Selector(shape="ball"), Selector(shape="cube")


@pytest.mark.parametrize(
    ("claim", "true"),
    [
        (Claim(side=0, kind="exists", selector=CUBE), True),
        (Claim(side=1, kind="exists", selector=CUBE), False),
        (Claim(side=1, kind="absent", selector=CUBE), True),
        (Claim(side=0, kind="absent", selector=CUBE), False),
        (Claim(side=0, kind="count", count=2), True),
        (Claim(side=1, kind="count", count=2), False),
        (Claim(side=0, kind="count", selector=Selector(colour="red", size="small"), count=1), True),
        (Claim(side=0, kind="count", selector=Selector(colour="red", size="large"), count=1), False),
        (Claim(side=0, kind="relation", selector=BALL, relation="left of", other=CUBE), True),
        (Claim(side=0, kind="relation", selector=CUBE, relation="left of", other=BALL), False),
        (Claim(side=0, kind="relation", selector=CUBE, relation="right of", other=BALL), True),
        (Claim(side=0, kind="relation", selector=BALL, relation="in front of", other=CUBE), True),
        (Claim(side=0, kind="relation", selector=BALL, relation="behind", other=CUBE), False),
        (Claim(side=0, kind="relation", selector=BALL, relation="behind", other=BALL), False),
        (Claim(side=0, kind="light", value=LIGHTS[0]), True),
        (Claim(side=1, kind="light", value=LIGHTS[0]), False),
        (Claim(side=0, kind="place", value="a room corner"), False),
        (Claim(side=0, kind="no_change"), False),
    ],
)
def test_a_claim_holds_or_not(claim, true):
    assert holds(claim, PAIR) is true


def test_all_must_hold():
    true, false = Claim(side=0, kind="exists", selector=BALL), Claim(side=1, kind="exists", selector=CUBE)
    assert all_hold((true, true), PAIR)
    assert not all_hold((true, false), PAIR)
    assert all_hold((), PAIR)


def test_viewpoint_and_light_are_no_change():
    moved = graph(RED, BLUE, light=LIGHTS[1], changes=(SceneChange(type="illumination"), SceneChange(type="viewpoint")))
    assert content_changes(moved) == frozenset()
    assert is_no_change((FIRST, moved))
    assert not is_no_change(PAIR)
    assert not is_no_change((FIRST, graph(RED, BLUE, world="other")))


def test_the_same_change_on_both_sides_is_no_change():
    assert is_no_change((SECOND, SECOND.model_copy(update={"photograph": 2})))


def test_claims_survive_their_column():
    claims = (
        Claim(side=1, kind="relation", selector=BALL, relation="behind", other=CUBE),
        Claim(side=0, kind="count", count=3),
    )
    assert CLAIMS.validate_json(CLAIMS.dump_json(claims, exclude_defaults=True)) == claims


@pytest.mark.parametrize("named", [{}, {"colour": "red"}, {"colour": "red", "size": "small"}, {"text": "CAFE"}])
def test_selecting_is_matching_one_by_one(named):
    scene = graph(RED, BLUE, thing("c", "sign", text="CAFE"), thing("d", colour="red", size="large"))
    selector = Selector(**named)
    assert selector.select(scene) == [one for one in scene.objects if selector.matches(one)]
