"""Planted photographs are true: masks, pixels and graphs agree, and the rest is untouched."""

from functools import reduce
from itertools import pairwise
from operator import or_

import numpy as np
import pytest
import skimage.data

from pairwright.schemas.config import PlantedConfig
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.planting import photograph_planted as module
from pairwright.tasks.planting.draw_planting import draw_planting
from pairwright.tasks.planting.find_spots import find_spots
from pairwright.tasks.planting.photograph_planted import (
    Planter,
    measure_contrast,
    photograph_planted,
)
from pairwright.tasks.planting.uncover import uncover

PHOTOGRAPH = scale_down(skimage.data.coffee(), 320)
CONFIG = PlantedConfig(photographs=3, samples_per_pixel=2)


@pytest.fixture(scope="module")
def worlds():
    """Return the photographs of several worlds of one photograph."""
    made = [
        photograph_planted(PHOTOGRAPH, CONFIG, world=str(seed), seeds=(0, seed))
        for seed in range(2)
    ]
    return [photographs for photographs in made if photographs is not None]


def is_plain(graph: SceneGraph) -> bool:
    return graph.light == "usual light" and graph.viewpoint == "the usual view"


def masks_of(graph: SceneGraph, name: str) -> list[np.ndarray]:
    return [decode_mask(getattr(item, name)) for item in graph.objects]


def test_most_worlds_find_room(worlds) -> None:
    assert len(worlds) == 2
    assert all(len(photographs) == 3 for photographs in worlds)


def test_not_one_byte_outside_things_and_shadows_differs(worlds) -> None:
    compared = 0
    for photographs in worlds:
        for made in photographs:
            if not is_plain(made.graph):
                continue
            touched = reduce(or_, masks_of(made.graph, "touched"))
            assert np.array_equal(made.pixels[~touched], PHOTOGRAPH[~touched])
            everything = [item.id for item in made.graph.objects]
            assert np.array_equal(uncover(made.pixels, made.graph, everything), PHOTOGRAPH)
            compared += 1
    assert compared


def test_things_stand_out_from_what_they_cover(worlds) -> None:
    for photographs in worlds:
        for made in photographs:
            if is_plain(made.graph):
                for mask in masks_of(made.graph, "mask"):
                    assert measure_contrast(made.pixels, PHOTOGRAPH, mask) >= 25


def test_a_thing_that_is_hardly_seen_is_refused(monkeypatch) -> None:
    planter = Planter(PHOTOGRAPH, CONFIG, (0, 0))
    rng = np.random.default_rng(0)
    exposed = None
    while exposed is None:
        planting = draw_planting(rng, find_spots(PHOTOGRAPH, rng), PHOTOGRAPH.shape[1])
        if planting is not None:
            exposed = planter.expose(planting)
    faintest = min(
        measure_contrast(exposed.pixels, PHOTOGRAPH, thing.mask)
        for thing in exposed.things.values()
    )
    monkeypatch.setattr(module, "MIN_CONTRAST", faintest + 1)
    assert planter.expose(exposed.planting) is None


def test_contrast_is_that_of_the_channel_that_differs_most() -> None:
    covered = np.zeros((2, 2, 3), np.uint8)
    pixels = covered.copy()
    pixels[0, 0] = (10, 40, 0)
    pixels[1, 1] = (0, 0, 20)
    assert measure_contrast(pixels, covered, np.eye(2, dtype=bool)) == 30.0


def test_things_are_whole_apart_and_large_enough_to_see(worlds) -> None:
    for photographs in worlds:
        for made in photographs:
            masks = masks_of(made.graph, "mask")
            assert np.sum(masks, axis=0).max() <= 1
            for item, mask in zip(made.graph.objects, masks, strict=True):
                rows, columns = np.nonzero(mask)
                assert item.box == (
                    columns.min(),
                    rows.min(),
                    columns.max() + 1,
                    rows.max() + 1,
                )
                assert mask.mean() >= 0.0025
                assert not mask[[0, -1]].any()
                assert not mask[:, [0, -1]].any()


def test_each_change_shows_and_things_without_one_are_equal(worlds) -> None:
    for photographs in worlds:
        plain = [made for made in photographs if is_plain(made.graph)]
        for first, second in pairwise(plain):
            changes = {*first.graph.changes} ^ {*second.graph.changes}
            changed = {change.object_id for change in changes}
            before = {item.id: item for item in first.graph.objects}
            after = {item.id: item for item in second.graph.objects}
            for name in {*before, *after}:
                touched = [
                    decode_mask(found[name].touched) for found in (before, after) if name in found
                ]
                region = reduce(or_, touched)
                differs = (first.pixels[region] != second.pixels[region]).any()
                assert differs == (name in changed)


def test_a_photograph_without_room_gives_nothing() -> None:
    narrow = np.full((400, 40, 3), 128, np.uint8)
    assert photograph_planted(narrow, CONFIG, world="narrow", seeds=(0, 0)) is None
