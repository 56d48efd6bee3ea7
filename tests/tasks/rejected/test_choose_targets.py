"""Which element of a rendered pair has to go, by hand."""

import pytest

from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.removing import ElementsConfig, TargetsConfig
from pairwright.schemas.rows import Dropped, TargetRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.rejected.choose_targets import choose_targets
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, image_row, pair_row, thing

CONFIG = TargetsConfig(enabled=True, elements=ElementsConfig(min_area=0.05, max_area=0.5))


def sized(share, *about, **fields):
    """Return an object that covers a share of an image of 100 pixels."""
    pixels = round(100 * share)
    mask = Mask(height=10, width=10, counts=(100 - pixels, pixels))
    return thing(*about).model_copy(update={"mask": mask, **fields})


def count(side, count, shape="ball", colour=None):
    selector = Selector(shape=shape, colour=colour)
    return Claim(side=side, kind="count", selector=selector, count=count)


def target(first, second, *claims):
    pair = pair_row("first", "second")
    images = {"first": image_row("first", first), "second": image_row("second", second)}
    row = description("shows a", "shows b", subject=pair.key, claims=claims)
    differences = {pair.key: row} if claims else {}
    (row,) = choose_targets([pair], CONFIG, images=images, differences=differences)
    return row


BALL, CUBE = sized(0.2), sized(0.1, "c", "cube", "blue")


def removed(row):
    assert isinstance(row, TargetRow)
    return row.subject, row.object_ids, row.drop


def test_the_element_that_makes_the_most_untrue_goes() -> None:
    claims = [count(0, 1, colour="red"), count(1, 0, colour="red")]
    row = target(graph(BALL, CUBE), graph(CUBE), *claims)
    assert removed(row) == ("first", ("a",), 0.5)
    # The smallest of those that are large enough
    smaller, tiny = sized(0.1, "b"), sized(0.01, "c")
    row = target(graph(BALL, smaller, tiny), graph(), count(0, 3))
    assert removed(row) == ("first", ("b",), 1)
    # With what it carries
    box, carried = sized(0.2, "a", "box"), sized(0.1, "b", support="a")
    row = target(graph(), graph(box, carried), count(1, 1, "box"))
    assert removed(row) == ("second", ("a", "b"), 1)


UNTOUCHED = count(0, 0, shape="cube")


@pytest.mark.parametrize(
    ("graphs", "claims", "reason"),
    [
        ((graph(BALL), graph(BALL)), [], "no difference description"),
        ((graph(BALL), None), [UNTOUCHED], "no rendered scene"),
        ((graph(sized(0.6)), graph()), [UNTOUCHED], "no element can be removed"),
        ((graph(BALL), graph()), [UNTOUCHED], "no removal makes the text fit worse"),
    ],
)
def test_pairs_without_an_element_say_why(graphs, claims, reason) -> None:
    row = target(*graphs, *claims)
    assert isinstance(row, Dropped)
    assert row.reason == reason
