import numpy as np
import pytest

from pairwright.tasks.sources.scene.mesh import (
    arc,
    ball,
    corner_normals,
    lathe,
    moved,
    planar_uv,
    rounded_box,
    tube,
    turned,
)


def volume(soup):
    """By the divergence theorem: positive only where the triangles wind outwards."""
    return np.einsum("ij,ij->i", soup[:, 0], np.cross(soup[:, 1], soup[:, 2])).sum() / 6


def test_ball_has_the_volume_of_a_sphere():
    assert volume(ball((1, 2, 3), 0.5)) == pytest.approx(4 / 3 * np.pi * 0.5**3, rel=0.01)


def test_cylinder_turned_on_a_lathe():
    assert volume(lathe([(0, 0), (0.5, 0), (0.5, 2), (0, 2)], sides=200)) == pytest.approx(np.pi * 0.25 * 2, rel=0.001)


def test_box_loses_only_its_edges():
    sharp, bevel = 1 * 2 * 3, 0.1
    # Exact: inner box, six slabs, twelve quarter cylinders and eight eighths of a sphere.
    a, b, c = 1 - 2 * bevel, 2 - 2 * bevel, 3 - 2 * bevel
    slabs = 2 * bevel * (a * b + b * c + a * c)
    exact = a * b * c + slabs + np.pi * bevel**2 * (a + b + c) + 4 / 3 * np.pi * bevel**3
    measured = volume(rounded_box((0, 0, 0), (1, 2, 3), bevel))
    assert measured == pytest.approx(exact, rel=0.005)
    assert measured < sharp


def test_closed_tube_is_a_torus():
    t = np.linspace(0, 2 * np.pi, 80, endpoint=False)
    path = np.stack([np.cos(t), np.sin(t), np.zeros(80)], axis=1)
    assert volume(tube(path, 0.2, closed=True, sides=40)) == pytest.approx(2 * np.pi**2 * 0.2**2, rel=0.01)


def test_open_tube_has_ends():
    straight = np.array([(0, 0, 0), (0, 0.01, 1), (0, 0, 2)], dtype=float)
    assert volume(tube(straight, 0.3, sides=60)) == pytest.approx(np.pi * 0.09 * 2, rel=0.01)


def test_normals_of_a_ball_point_away_from_its_centre():
    soup = ball((0, 0, 0), 2.0)
    assert np.abs(corner_normals(soup) - soup / 2).max() < 0.03


def test_creases_stay_sharp():
    pyramid = lathe([(0, 0), (1, 0), (0, 1)], sides=4)
    face = np.cross(pyramid[:, 1] - pyramid[:, 0], pyramid[:, 2] - pyramid[:, 0])
    face /= np.linalg.norm(face, axis=1, keepdims=True)
    assert np.allclose(corner_normals(pyramid), face[:, None].repeat(3, 1))


def test_turn_and_move_by_hand():
    point = np.array([[[1.0, 0, 0]] * 3])
    assert np.allclose(turned(point, 90, axis=2), [[[0, 1, 0]] * 3])
    assert np.allclose(turned(point, 90, axis=2, about=(1, 1, 0)), [[[2, 1, 0]] * 3])
    assert np.allclose(moved(point, (0, 0, 5)), [[[1, 0, 5]] * 3])


def test_arc_ends_and_texture_plane():
    assert np.allclose(arc((1, 1), 0.5, (0, 90), 2), [(1.5, 1), (1, 1.5)])
    wall = np.array([[(5.0, 1, 2), (5, 3, 4), (5, 1, 6)]])
    assert np.array_equal(planar_uv(wall), [[(1, 2), (3, 4), (1, 6)]])
