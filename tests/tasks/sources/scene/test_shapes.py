import numpy as np
import pytest

from pairwright.schemas.scene import PLURALS, PREPOSITIONS
from pairwright.tasks.sources.scene.places import STYLES, surfaces_of
from pairwright.tasks.sources.scene.shapes import FORMS, extent_of, form_of
from pairwright.tasks.sources.scene.vocabulary import (
    COLOURS,
    METALLIC_COLOURS,
    NEAR_COLOURS,
    PLACES,
    SHAPES,
    SIZES,
    TEXTS,
)
from tests.tasks.sources.scene.test_mesh import volume

ALL = [(shape, pose) for shape, kind in SHAPES.items() for pose in kind.poses or (None,)]


def test_vocabulary_is_as_rich_as_asked():
    assert set(SHAPES) == set(FORMS) == set(PLURALS)
    assert set(PLACES) == set(PREPOSITIONS)
    assert len(SHAPES) >= 8
    assert len(COLOURS) >= 8
    assert len(SIZES) == 3
    assert len({material for kind in SHAPES.values() for material in kind.materials}) >= 3
    assert len(PLACES) >= 4
    assert set(METALLIC_COLOURS) < set(COLOURS)
    assert set().union(*NEAR_COLOURS) <= set(COLOURS)
    assert all(len(text) <= 4 for text in TEXTS)


@pytest.mark.parametrize(("shape", "pose"), ALL)
def test_every_form_is_closed_and_stands_on_the_ground(shape, pose):
    parts = form_of(shape, pose)
    corners = np.concatenate([part.soup.reshape(-1, 3) for part in parts])
    assert corners[:, 2].min() == pytest.approx(0, abs=1e-9)
    assert all(volume(part.soup) > 0 for part in parts if part.role != "board")
    assert parts[0].role == "body"
    centre, half, height = extent_of(shape, pose)
    assert np.abs(corners[:, :2] - centre).max(axis=0) == pytest.approx(half)
    assert height == pytest.approx(corners[:, 2].max())


@pytest.mark.parametrize(("shape", "pose"), ALL)
def test_normals_are_unit_and_point_out_of_the_faces(shape, pose):
    for part in form_of(shape, pose):
        face = np.cross(part.soup[:, 1] - part.soup[:, 0], part.soup[:, 2] - part.soup[:, 0])
        assert np.linalg.norm(part.normals, axis=2) == pytest.approx(1)
        assert (np.einsum("nj,nkj->nk", face, part.normals) > 0).all()


@pytest.mark.parametrize("shape", [shape for shape, kind in SHAPES.items() if kind.poses])
def test_poses_look_different(shape):
    first, second = (
        np.concatenate([p.soup.reshape(-1, 3) for p in form_of(shape, pose)]) for pose in SHAPES[shape].poses
    )
    assert first.shape != second.shape or np.abs(first - second).max() > 0.1


@pytest.mark.parametrize("place", PLACES)
def test_nothing_of_a_place_is_where_things_stand(place):
    for style in range(STYLES):
        for surface in surfaces_of(place, style):
            low, high = surface.soup.min(axis=1), surface.soup.max(axis=1)
            beside = (low[:, 0] > 2.8) | (high[:, 0] < -2.8) | (low[:, 1] > 2.5) | (high[:, 1] < -2.5)
            assert (beside | (high[:, 2] <= 1e-9)).all()
