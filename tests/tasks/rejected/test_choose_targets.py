"""Which element of a rendered pair has to go, by hand."""

from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.removing import ElementsConfig, TargetsConfig
from pairwright.schemas.rows import Dropped, TargetRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.rejected.choose_targets import choose_targets
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, image_row, pair_row, thing

CONFIG = TargetsConfig(enabled=True, elements=ElementsConfig(min_area=0.05, max_area=0.5))
RED_BALL = Selector(colour="red", shape="ball")


def sized(one, share):
    """Return an object that covers a share of an image of 100 pixels."""
    return one.model_copy(
        update={
            "mask": Mask(height=10, width=10, counts=(100 - round(100 * share), round(100 * share)))
        }
    )


def target(first, second, *claims):
    pair = pair_row("first", "second")
    images = {"first": image_row("first", first), "second": image_row("second", second)}
    differences = (
        {pair.key: description("shows a", "shows b", subject=pair.key, claims=claims)}
        if claims
        else {}
    )
    (found,) = choose_targets([pair], CONFIG, images=images, differences=differences)
    return found


def test_the_element_that_makes_the_most_untrue_goes_with_what_rests_on_it():
    ball, cube = sized(thing("a"), 0.2), sized(thing("c", "cube", "blue"), 0.1)
    claims = [
        Claim(side=0, kind="count", selector=RED_BALL, count=1),
        Claim(side=1, kind="count", selector=RED_BALL, count=0),
    ]
    found = target(graph(ball, cube), graph(cube), *claims)
    assert isinstance(found, TargetRow)
    assert (found.subject, found.object_ids, found.drop) == ("first", ("a",), 0.5)
    claim = Claim(side=0, kind="count", selector=RED_BALL, count=3)
    balls = [sized(thing(name), share) for name, share in (("a", 0.2), ("b", 0.1), ("c", 0.01))]
    found = target(graph(*balls), graph(), claim)
    assert (found.subject, found.object_ids, found.drop) == ("first", ("b",), 1)
    claim = Claim(side=1, kind="count", selector=Selector(shape="box"), count=1)
    box, ball = (
        sized(thing("a", "box"), 0.2),
        sized(thing("b"), 0.1).model_copy(update={"support": "a"}),
    )
    found = target(graph(), graph(box, ball), claim)
    assert (found.subject, found.object_ids) == ("second", ("a", "b"))


def test_pairs_without_an_element_say_why():
    ball = sized(thing("a"), 0.2)
    untouched = Claim(side=0, kind="count", selector=Selector(shape="cube"), count=0)
    cases = {
        "no difference description": target(graph(ball), graph(ball)),
        "no rendered scene": target(graph(ball), None, untouched),
        "no element can be removed": target(graph(sized(ball, 0.6)), graph(), untouched),
        "no removal makes the text fit worse": target(graph(ball), graph(), untouched),
    }
    for reason, found in cases.items():
        assert isinstance(found, Dropped)
        assert found.reason == reason
