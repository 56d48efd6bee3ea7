"""Rendered removals: light of many samples is the truth, and bad fillings are planted."""

from dataclasses import dataclass, replace

import cv2
import numpy as np
import pytest

from pairwright.schemas.config import InspectionConfig, RemovalsConfig, ScenesConfig
from pairwright.schemas.rows import Dropped, ImageRow, RemovalRow
from pairwright.tasks.images.decode import decode_rgb, put_patch
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.models.scene_models import tags_of
from pairwright.tasks.rejected.inspect_removals import inspect_removals
from pairwright.tasks.rejected.remove_elements import remove_elements
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import element_of, png

RENDERED = RemovalsConfig(inpainter="rendered")
SCENES = ScenesConfig(seed=3, photographs=2, width=200, height=150)
NOT_THE_SCENE = "not what the scene shows (inspection.max_difference=2)"


@dataclass
class Removal:
    """An image, its element's pixels, the removal, and the light with and without the element."""

    image: ImageRow
    mask: np.ndarray
    row: RemovalRow
    light: np.ndarray
    truth: np.ndarray

    def __post_init__(self):
        self.before = decode_rgb(self.image.image)
        self.after = put_patch(self.before, self.row.patch, self.row.window)


def removals_of(world):
    """Return the removals of two things of a world."""
    from pairwright.tasks.scenes.render import exposure_of
    from pairwright.tasks.scenes.world import photograph_world

    picture, scene = next(photograph_world(SCENES, world))
    image = photograph(picture, graph=scene)
    exposure = exposure_of(scene)
    light = replace(exposure, samples=64, seed=99).expose()
    for tag in tags_of(scene)[:2]:
        masks = [decode_mask(item.mask) for item in scene.objects if item.id in tag.objects]
        mask = np.logical_or.reduce(masks)
        element = element_of(image.key, tag.name, mask=mask, objects=tag.objects)
        (row,) = remove_elements([element], RENDERED, images={image.key: image})
        assert isinstance(row, RemovalRow)
        truth = replace(exposure.without(*tag.objects), samples=64, seed=99).expose()
        yield Removal(image, mask, row, light, truth)


@pytest.fixture(scope="module")
def removals():
    return [*removals_of(0), *removals_of(2)]


def inspect(removal, pixels=None):
    """Inspect a removal, with other pixels in its window."""
    row = removal.row
    if pixels is not None:
        x0, y0, x1, y1 = row.window
        row = replace(row, patch=png(pixels[y0:y1, x0:x1]))
    images = {removal.image.key: removal.image}
    (made,) = inspect_removals([row], InspectionConfig(rendered=True), images=images)
    return made


def difference(first, second):
    return np.abs(first.astype(int) - second).max(axis=2)


def morphed(mask, change, width):
    return change(mask.astype(np.uint8), np.ones((width, width))).astype(bool)


def test_the_element_and_its_shadow_are_gone_and_all_else_stays(removals) -> None:
    for removal in removals:
        mask, before, after = removal.mask, removal.before, removal.after
        light, left = difference(before, removal.truth), difference(after, removal.truth)
        cast = difference(removal.light, removal.truth) > 24
        shadow = morphed(cast, cv2.erode, 3) & ~mask
        assert np.median(left[mask]) <= 8 < np.median(light[mask])
        assert not shadow.any() or np.median(left[shadow]) < 0.5 * np.median(light[shadow])
        same = (before == after).all(axis=2)
        near = morphed(light > 3, cv2.dilate, 25)
        assert same[~near].mean() > 0.98
        assert same.mean() > 0.5


def test_good_removals_pass_and_planted_fillings_do_not(removals) -> None:
    inspections = [inspect(removal) for removal in removals]
    assert all(made.passed and made.difference <= 1.5 for made in inspections)
    planted = []
    for removal in removals:
        before, after, mask = removal.before, removal.after, removal.mask
        hole = morphed(mask, cv2.dilate, 7).astype(np.uint8)
        rim = mask & ~morphed(mask, cv2.erode, 5)
        planted += [
            inspect(removal, cv2.inpaint(before, hole, 5, cv2.INPAINT_TELEA)),
            inspect(removal, np.clip(after.astype(int) + 20, 0, 255).astype(np.uint8)),
            inspect(removal, np.where(rim[..., None], before, after)),
            inspect(removal, before),
        ]
    assert {made.why for made in planted} <= {"", NOT_THE_SCENE}
    assert sum(not made.passed for made in planted) >= 0.95 * len(planted)


def test_what_was_not_rendered_is_not_removed_so() -> None:
    image = photograph(np.zeros((20, 30, 3), np.uint8), graph=graph(thing("a")))
    element = element_of(image.key, "ball", objects=("a",))
    (dropped,) = remove_elements([element], RENDERED, images={image.key: image})
    assert isinstance(dropped, Dropped)
    assert dropped.reason == "not known how it was rendered"
