"""Expected images: which look is taken, and that nothing else of the rendering changes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.claims import Claim, Selector
from pairwright.schemas.config import ExpectedImagesConfig, ScenesConfig
from pairwright.schemas.rows import Dropped, ExpectedRow, LooksRow
from pairwright.tasks.images.decode import decode_rgb, put_patch
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.rejected.list_looks import count_prior, list_looks
from pairwright.tasks.rejected.render_expected import AS_EXPECTED, find_looks, render_expected
from tests.fixtures.descriptions import description
from tests.fixtures.graphs import graph, pair_row, thing
from tests.fixtures.pictures import photograph

SCENES = ScenesConfig(seed=3, photographs=2, width=200, height=150, samples_per_pixel=4)
BLUE = {("ball", "colour"): Counter(blue=9, red=1), ("ball", "size"): Counter(large=6, small=4)}


def exists(shape, *, side=0, **named):
    return Claim(side=side, kind="exists", selector=Selector(shape=shape, **named))


def test_a_text_that_goes_against_the_prior_has_an_expected_look() -> None:
    """The ball is red, and nine of ten balls are blue; its size makes no statement false."""
    text = description("shows a red ball", "shows a cube", claims=[exists("ball", colour="red")])
    graphs = (graph(thing()), graph(thing("b", "cube")))
    (look,) = find_looks(text, graphs, BLUE, min_share=0.5)
    assert (look.side, look.object_id, look.attribute) == (0, "a", "colour")
    assert (look.before, look.after, look.share, look.drop) == ("red", "blue", 0.9, 1.0)
    assert find_looks(text, graphs, BLUE, min_share=0.95) == []


def test_the_look_that_most_statements_are_against_comes_first() -> None:
    """Another size makes one of two statements false, another colour both."""
    claims = [exists("ball", colour="red"), exists("ball", colour="red", size="small")]
    text = description("shows a red ball", "shows a cube", claims=claims)
    graphs = (graph(thing(size="small")), graph(thing("b", "cube")))
    prior = {**BLUE, ("ball", "size"): Counter(large=99, small=1)}
    looks = find_looks(text, graphs, prior, min_share=0.5)
    assert [(look.attribute, look.drop) for look in looks] == [("colour", 1.0), ("size", 0.5)]


def test_a_look_that_no_statement_is_about_or_that_is_expected_is_none() -> None:
    about_shape = description("shows a ball", "shows a cube", claims=[exists("ball")])
    graphs = (graph(thing()), graph(thing("b", "cube")))
    assert find_looks(about_shape, graphs, BLUE, min_share=0) == []
    expected = description("shows a blue ball", "shows it", claims=[exists("ball", colour="blue")])
    blue = (graph(thing(colour="blue", size="large")), graphs[1])
    assert find_looks(expected, blue, BLUE, min_share=0) == []


@pytest.fixture(scope="module")
def rendered():
    """Return both images of a world, and a prior against the colour of a thing in the first."""
    from pairwright.tasks.scenes.world import photograph_world

    taken = [photo for photo in photograph_world(SCENES, 0) if photo is not None]
    return [photograph(pixels, graph=scene) for pixels, scene in taken]


def test_the_thing_has_the_expected_colour_and_all_else_stays(rendered) -> None:
    first, second = rendered
    item = max(first.graph.objects, key=lambda one: decode_mask(one.mask).sum())
    other = next(name for name in ("blue", "yellow", "green", "pink") if name != item.colour)
    selector = {"shape": item.shape, "colour": item.colour}
    text = description("shows it", "shows it", claims=[exists(**selector)])
    pair = pair_row(first.key, second.key)
    text = replace(text, subject=pair.key)
    (looks,) = list_looks([first], ExpectedImagesConfig())
    looks = replace(looks, shapes=(item.shape,), colours=(other,), materials=("",), sizes=("",))
    table = to_table([looks], LooksRow)
    (row,) = render_expected(
        [pair],
        ExpectedImagesConfig(),
        looks=table,
        images={first.key: first, second.key: second},
        differences={pair.key: text},
    )
    assert isinstance(row, ExpectedRow), row
    assert (row.attribute, row.after, row.drop) == ("colour", other, 1.0)
    before = decode_rgb((first, second)[row.side].image)
    after = put_patch(before, row.patch, row.window)
    changed = np.abs(after.astype(int) - before).max(axis=2) > 3
    mask = decode_mask(item.mask)
    if row.side == 0:
        assert changed[mask].mean() > 0.5
        assert changed[~mask].mean() < 0.3
    assert count_prior(table)[item.shape, "colour"] == Counter({other: 1})


def test_a_pair_that_is_as_expected_or_was_not_rendered_has_none(rendered) -> None:
    first, second = rendered
    pair = pair_row(first.key, second.key)
    text = replace(description("shows it", "shows it"), subject=pair.key)
    inputs = {"looks": to_table([], LooksRow), "differences": {pair.key: text}}
    images = {first.key: first, second.key: second}
    (row,) = render_expected([pair], ExpectedImagesConfig(), images=images, **inputs)
    assert row == Dropped(source_key=pair.key, reason=AS_EXPECTED, detail="0 looks")
    drawn = first.graph.model_copy(update={"exposure": ""})
    images[first.key] = replace(first, graph=drawn)
    (row,) = render_expected([pair], ExpectedImagesConfig(), images=images, **inputs)
    assert row.reason == "not known how it was rendered"
