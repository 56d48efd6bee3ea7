"""Looks of things, and the prior that is counted from them."""

from pairwright.schemas.arrow import to_table
from pairwright.schemas.config import ExpectedImagesConfig
from pairwright.schemas.rows import Dropped, LooksRow
from pairwright.tasks.rejected.list_looks import count_prior, expected_value, list_looks
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph, picture


def image_of(number, *things):
    scene = graph(*things) if things else None
    return photograph(picture(number), graph=scene)


def test_the_commonest_value_of_a_kind_of_thing() -> None:
    """Two of three balls are blue; of equally common values the first by name counts."""
    images = [
        image_of(number, thing(colour=colour), thing("b", "cube", colour, material=material))
        for number, (colour, material) in enumerate(
            [("blue", "metal"), ("red", "glass"), ("blue", None)]
        )
    ]
    rows = list(list_looks(images, ExpectedImagesConfig()))
    prior = count_prior(to_table(rows, LooksRow))
    assert expected_value(prior, "ball", "colour") == ("blue", 2 / 3)
    assert expected_value(prior, "cube", "material") == ("glass", 1 / 2)
    assert expected_value(prior, "ball", "size") == ("small", 1.0)
    assert expected_value(prior, "vase", "colour") == ("", 0.0)


def test_an_image_without_a_graph_has_no_looks() -> None:
    image = image_of(0)
    (row,) = list_looks([image], ExpectedImagesConfig())
    assert row == Dropped(source_key=image.key, reason="no scene graph")
