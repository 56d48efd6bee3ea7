import numpy as np
import pytest

from pairwright.schemas.scene import PLURALS, PREPOSITIONS
from pairwright.tasks.scenes.places import LIFT, STYLES, surfaces_of
from pairwright.tasks.scenes.shapes import FORMS, extent_of, form_of
from pairwright.tasks.scenes.vocabulary import (
    COLOURS,
    METALLIC_COLOURS,
    NEAR_COLOURS,
    PLACES,
    SHAPES,
)

ALL = [(shape, pose) for shape, kind in SHAPES.items() for pose in kind.poses or (None,)]


def test_every_word_has_its_form_and_its_grammar() -> None:
    assert set(SHAPES) == set(FORMS) == set(PLURALS)
    assert set(PLACES) == set(PREPOSITIONS)
    assert set(METALLIC_COLOURS) | set().union(*NEAR_COLOURS) <= set(COLOURS)


@pytest.mark.parametrize(("shape", "pose"), ALL)
def test_every_form_is_closed_and_stands_on_the_ground(shape, pose) -> None:
    parts = form_of(shape, pose)
    corners = np.concatenate([part.soup.reshape(-1, 3) for part in parts])
    assert corners[:, 2].min() == pytest.approx(0, abs=1e-9)
    assert all(volume(part.soup) > 0 for part in parts if part.role != "board")
    assert parts[0].role == "body"
    centre, half, height = extent_of(shape, pose)
    assert np.abs(corners[:, :2] - centre).max(axis=0) == pytest.approx(half)
    assert height == pytest.approx(corners[:, 2].max())


@pytest.mark.parametrize(("shape", "pose"), ALL)
def test_normals_are_unit_and_point_out_of_the_faces(shape, pose) -> None:
    for part in form_of(shape, pose):
        face = np.cross(part.soup[:, 1] - part.soup[:, 0], part.soup[:, 2] - part.soup[:, 0])
        assert np.linalg.norm(part.normals, axis=2) == pytest.approx(1)
        assert (np.einsum("nj,nkj->nk", face, part.normals) > 0).all()


@pytest.mark.parametrize("place", PLACES)
def test_nothing_of_a_place_is_where_things_stand(place) -> None:
    for style in range(STYLES):
        for surface in surfaces_of(place, style):
            low, high = surface.soup.min(axis=1), surface.soup.max(axis=1)
            beside = (low[:, :2] > (2.8, 2.5)) | (high[:, :2] < (-2.8, -2.5))
            assert (beside.any(axis=1) | (high[:, 2] <= 2 * LIFT + 1e-9)).all()


def volume(soup):
    """By the divergence theorem: positive only where the triangles wind outwards."""
    return np.einsum("ij,ij->i", soup[:, 0], np.cross(soup[:, 1], soup[:, 2])).sum() / 6
