"""Claims about small scene graphs whose truth is plain to see."""

import pytest

from pairwright.schemas import claims
from pairwright.schemas.claims import (
    CLAIMS,
    Claim,
    Selector,
    all_hold,
    is_no_change,
    is_true_claim,
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


SMALL_RED, LARGE_RED = (Selector(colour="red", size=size) for size in ("small", "large"))


def relation(first: Selector, kind: str, second: Selector) -> Claim:
    return Claim(side=0, kind="relation", selector=first, relation=kind, other=second)


@pytest.mark.parametrize(
    "claim",
    [
        Claim(side=0, kind="exists", selector=CUBE),
        Claim(side=1, kind="absent", selector=CUBE),
        Claim(side=0, kind="count", count=3),
        Claim(side=0, kind="count", selector=SMALL_RED, count=1),
        relation(BALL, "left of", CUBE),
        relation(CUBE, "right of", BALL),
        Claim(side=0, kind="light", value=LIGHTS[0]),
    ],
)
def test_a_true_claim_holds(claim: Claim) -> None:
    assert is_true_claim(claim, PAIR)


@pytest.mark.parametrize(
    "claim",
    [
        Claim(side=1, kind="exists", selector=CUBE),
        Claim(side=0, kind="absent", selector=CUBE),
        Claim(side=1, kind="count", count=3),
        Claim(side=0, kind="count", selector=LARGE_RED, count=1),
        relation(CUBE, "left of", BALL),
        relation(BALL, "behind", BALL),
        Claim(side=1, kind="light", value=LIGHTS[0]),
        Claim(side=0, kind="place", value="a room corner"),
        Claim(side=0, kind="no_change"),
    ],
)
def test_a_false_claim_does_not_hold(claim: Claim) -> None:
    assert not is_true_claim(claim, PAIR)


def test_where_things_stand_is_open_unless_the_opposite_is_clear() -> None:
    mug = Selector(shape="mug")
    opposite, aside = relation(CUBE, "in front of", mug), relation(CUBE, "left of", mug)
    assert not may_hold((opposite,), PAIR)  # it stands behind
    assert not all_hold((aside,), PAIR)
    assert may_hold((aside,), PAIR)
    assert not may_hold((aside, Claim(side=1, kind="exists", selector=CUBE)), PAIR)


def test_viewpoint_light_and_the_same_change_on_both_sides_are_no_change() -> None:
    changes = (SceneChange(type="illumination"), SceneChange(type="viewpoint"))
    moved = graph(RED, BLUE, MUG, light=LIGHTS[1], changes=changes)
    assert claims.content_changes(moved) == frozenset()
    assert is_no_change((FIRST, moved))
    assert not is_no_change(PAIR)
    assert not is_no_change((FIRST, graph(RED, BLUE, MUG, world="other")))
    assert is_no_change((SECOND, SECOND.model_copy(update={"photograph": 2})))


def test_claims_survive_their_column() -> None:
    both = (relation(BALL, "behind", CUBE), Claim(side=0, kind="count"))
    assert CLAIMS.validate_json(CLAIMS.dump_json(both, exclude_defaults=True)) == both


RELATIONS = ("left of", "right of", "in front of", "behind")


@pytest.mark.parametrize(
    ("box", "depth", "seen", "mirrored"),
    [
        pytest.param((100, 40, 140, 70), "back", "in front of", "behind", id="ahead"),
        pytest.param((120, 40, 160, 70), "back", "in front of", "behind", id="by half"),
        pytest.param((121, 40, 161, 70), "back", "", "", id="by less"),
        pytest.param((100, 40, 140, 70), "front", "", "", id="same depth"),
        pytest.param((100, 40, 140, 90), "back", "", "", id="not lower"),
        pytest.param((150, 40, 190, 70), "back", "left of", "right of", id="aside"),
        pytest.param((126, 40, 166, 70), "front", "left of", "right of", id="just"),
        pytest.param((119, 40, 180, 70), "front", "", "", id="middle within"),
        pytest.param((90, 40, 240, 70), "front", "", "", id="wide"),
        pytest.param((0, 40, 60, 70), "back", "right of", "left of", id="right"),
    ],
)
def test_relations_can_be_seen(
    box: tuple[int, int, int, int], depth: str, seen: str, mirrored: str
) -> None:
    """Of a thing 40 pixels wide at 100 to 140, whose middle is 120, in a picture of 256."""
    near = thing("a", box=(100, 50, 140, 80))
    far = thing("b", "cube", box=box, depth=depth)
    assert "".join(each for each in RELATIONS if stands(near, each, far)) == seen
    assert "".join(each for each in RELATIONS if stands(far, each, near)) == mirrored
