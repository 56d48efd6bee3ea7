"""Rendered worlds without one of their things: the light of many samples is the truth, and bad
fillings are planted."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from pairwright.schemas.config import InspectionConfig, RemovalsConfig, ScenesConfig
from pairwright.schemas.rows import Dropped, RemovalRow
from pairwright.tasks.images.decode import decode_rgb, encode_png, put_patch
from pairwright.tasks.images.masks import decode_mask, encode_mask
from pairwright.tasks.models.scene_models import tags_of
from pairwright.tasks.rejected.inspect_removals import inspect_removals
from pairwright.tasks.rejected.remove_elements import remove_elements
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import element_of

RENDERED = RemovalsConfig(inpainter="rendered")


@pytest.fixture(scope="module")
def removals():
    """Return image, element's pixels, removal and truth with and without it: two of each of two
    worlds."""
    from pairwright.tasks.scenes.render import exposure_of
    from pairwright.tasks.scenes.world import photograph_world

    found = []
    for index in (0, 2):
        picture, scene = next(
            photograph_world(ScenesConfig(seed=3, photographs=2, width=200, height=150), index)
        )
        image = photograph(picture, graph=scene)
        exposure = exposure_of(scene)
        with_all = replace(exposure, samples=64, seed=99).take()
        for tag in tags_of(scene)[:2]:
            mask = np.logical_or.reduce(
                [decode_mask(one.mask) for one in scene.objects if one.id in tag.objects]
            )
            row = replace(
                element_of(image.key, tag.name, objects=tag.objects),
                mask=encode_mask(mask).model_dump_json(),
            )
            (made,) = remove_elements([row], RENDERED, images={image.key: image})
            truth = replace(exposure.without(*tag.objects), samples=64, seed=99).take()
            found.append((image, mask, made, (with_all, truth)))
    return found


def inspect(image, row):
    (made,) = inspect_removals([row], InspectionConfig(rendered=True), images={image.key: image})
    return made


def patched(row, pixels):
    """Return the removal with other pixels in its window."""
    x0, y0, x1, y1 = row.window
    return replace(row, patch=encode_png(np.ascontiguousarray(pixels[y0:y1, x0:x1])))


def test_the_element_and_its_shadow_are_gone_and_all_else_stays(removals):
    for image, mask, row, (with_it, truth) in removals:
        assert isinstance(row, RemovalRow)
        before = decode_rgb(image.image)
        after = put_patch(before, row.patch, row.window)
        light = np.abs(before.astype(int) - truth).max(axis=2)
        left = np.abs(after.astype(int) - truth).max(axis=2)
        cast = np.abs(with_it.astype(int) - truth).max(axis=2) > 24
        shadow = cv2.erode(cast.astype(np.uint8), np.ones((3, 3))).astype(bool) & ~mask
        assert np.median(left[mask]) <= 8 < np.median(light[mask])
        assert not shadow.any() or np.median(left[shadow]) < 0.5 * np.median(light[shadow])
        same = (before == after).all(axis=2)
        near = cv2.dilate((light > 3).astype(np.uint8), np.ones((25, 25))).astype(bool)
        assert same[~near].mean() > 0.98
        assert same.mean() > 0.5


def test_good_removals_pass_and_planted_fillings_do_not(removals):
    planted = []
    for image, mask, row, _ in removals:
        good = inspect(image, row)
        assert (good.passed, good.difference <= 1.5) == (True, True)
        before = decode_rgb(image.image)
        after = put_patch(before, row.patch, row.window)
        hole = cv2.dilate(mask.astype(np.uint8), np.ones((7, 7)))
        rim = mask & ~cv2.erode(mask.astype(np.uint8), np.ones((5, 5))).astype(bool)
        lighter = np.clip(after.astype(int) + 20, 0, 255).astype(np.uint8)
        for bad in (
            cv2.inpaint(before, hole, 5, cv2.INPAINT_TELEA),
            lighter,
            np.where(rim[..., None], before, after),
            before,
        ):
            planted.append(inspect(image, patched(row, bad)))
    assert {one.why for one in planted} <= {
        "",
        "not what the scene shows (inspection.max_difference=2)",
    }
    assert sum(not one.passed for one in planted) >= 0.95 * len(planted)


def test_what_was_not_rendered_is_not_removed_so():
    image = photograph(np.zeros((20, 30, 3), np.uint8), graph=graph(thing("a")))
    (made,) = remove_elements(
        [element_of(image.key, "ball", objects=("a",))], RENDERED, images={image.key: image}
    )
    assert isinstance(made, Dropped)
    assert made.reason == "not known how it was rendered"
