"""A planted thing is taken out again: the photograph as it was, and nothing else of it."""

from dataclasses import replace

import numpy as np

from pairwright.schemas.rows import Dropped, RemovalRow
from pairwright.schemas.scene import Covered, SceneGraph, SceneObject
from pairwright.tasks.images.decode import encode_png
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.planting.uncover import uncover
from pairwright.tasks.rejected.render_removals import measure_difference, render_without
from tests.fixtures import removals
from tests.fixtures.rows import row_of

ORIGINAL = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8)
BOXES = {"ball": (4, 6, 14, 16), "cube": (20, 10, 40, 30)}


def planted() -> tuple[np.ndarray, SceneGraph]:
    """Return the photograph with two dark things, and its graph; a corner of each is untouched."""
    pixels = ORIGINAL.copy()
    objects: list[SceneObject] = []
    covered: list[Covered] = []
    for name, box in BOXES.items():
        x0, y0, x1, y1 = box
        touched = np.zeros(pixels.shape[:2], bool)
        touched[y0:y1, x0:x1] = True
        touched[y0 : y0 + 3, x0 : x0 + 3] = False
        pixels[touched] = 7
        mask = encode_mask(touched)
        thing = SceneObject(
            id=name,
            shape=name,
            colour="black",
            material="metal",
            size="small",
            column="left",
            depth=None,
            box=box,
            visible=1,
            mask=mask,
            touched=mask,
        )
        objects.append(thing)
        # Where the thing does not touch it, the patch is not what was there.
        patch = np.where(touched[..., None], ORIGINAL, 0).astype(np.uint8)[y0:y1, x0:x1]
        covered.append(Covered(object_id=name, window=box, png=encode_png(patch)))
    graph = SceneGraph(
        world="w",
        photograph=0,
        place="a photograph",
        light="usual light",
        viewpoint="the usual view",
        objects=tuple(objects),
        planted=True,
        covered=tuple(covered),
    )
    return pixels, graph


def test_one_thing_is_taken_out_and_the_other_stays() -> None:
    pixels, graph = planted()
    without = uncover(pixels, graph, ["ball"])
    assert np.array_equal(without[:, :20], ORIGINAL[:, :20])
    assert np.array_equal(without[:, 20:], pixels[:, 20:])
    assert np.array_equal(uncover(pixels, graph, list(BOXES)), ORIGINAL)


def test_a_graph_keeps_what_things_cover_in_json() -> None:
    _, graph = planted()
    assert SceneGraph.model_validate_json(graph.model_dump_json()) == graph


def test_a_removal_is_the_photograph_as_it_was() -> None:
    pixels, graph = planted()
    image = DecodedImage(pixels, graph)
    row = replace(removals.element_of("image", "black metal ball"), object_ids=("ball",))
    rendered = render_without(row, image, feather=5)
    assert not isinstance(rendered, Dropped)
    after, weight = rendered
    assert np.array_equal(after[:, :20], ORIGINAL[:, :20])
    assert np.array_equal(weight > 0, (pixels != after).any(axis=2))
    assert set(np.unique(weight)) == {0, 1}


def test_a_removal_is_held_against_the_photograph() -> None:
    pixels, graph = planted()
    image = DecodedImage(pixels, graph)
    x0, y0, x1, y1 = BOXES["ball"]
    right = encode_png(np.ascontiguousarray(ORIGINAL[y0:y1, x0:x1]))
    kept = encode_png(np.ascontiguousarray(pixels[y0:y1, x0:x1]))
    row = row_of(RemovalRow, source="e", window=BOXES["ball"], patch=right, object_ids=("ball",))
    assert measure_difference(row, image) == 0
    assert measure_difference(replace(row, patch=kept), image) > 100
