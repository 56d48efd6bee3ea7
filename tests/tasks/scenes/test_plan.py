from dataclasses import replace

import cv2
import numpy as np
import pytest

from pairwright.tasks.scenes.plan import all_visible, overlap, rests_on, stands_free, visible_shares
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Light, View

VIEW = View(0, 30, "a raised viewpoint from the front")
CAMERA = Camera(VIEW, 128, 96)
CUBE = Thing("cube", "cube", "red", "rubber", "large")
BALL = Thing("ball", "ball", "blue", "rubber", "small")
TOP = replace(BALL, z=CUBE.height, support="cube")
BOX = replace(CUBE, shape="box", pose="with its lid closed")


def scene(*things):
    return Scene("a photo studio", 0, VIEW, Light("left", "white"), things)


def test_overlap_agrees_with_opencv():
    rng = np.random.default_rng(3)

    def rectangle():
        return tuple(rng.uniform(0, 3, 2)), tuple(rng.uniform(0.3, 2, 2)), rng.uniform(0, 180)

    pairs = [(rectangle(), rectangle()) for _ in range(300)]
    meets = [cv2.rotatedRectangleIntersection(*pair)[0] != cv2.INTERSECT_NONE for pair in pairs]
    corners = [[cv2.boxPoints(one).astype(float) for one in pair] for pair in pairs]
    assert [overlap(first, second, gap=0) for first, second in corners] == meets
    assert 60 < sum(meets) < 240


@pytest.mark.parametrize(("x", "y"), [(1, 0), (-1, 0), (0, 1), (0, -1)])
@pytest.mark.parametrize(("space", "free"), [(0.04, False), (0.06, True)])
def test_gap_between_two_cubes(x, y, space, free):
    away = 2 * 0.29 * 1.42 + space  # two large cubes side by side
    other = replace(CUBE, id="other", x=x * away, y=y * away)
    assert stands_free(other, scene(CUBE, other)) is free


# The small ball is 0.46 wide, the flat top 0.766: 0.15 fits, 0.2 does not.
@pytest.mark.parametrize(
    ("thing", "carrier", "rests"),
    [
        pytest.param(TOP, CUBE, True, id="in the middle"),
        pytest.param(replace(TOP, x=0.15), CUBE, True, id="near the edge"),
        pytest.param(replace(TOP, x=0.2), CUBE, False, id="over the edge"),
        pytest.param(TOP, replace(CUBE, size="small"), False, id="on a small cube"),
        pytest.param(replace(TOP, size="large"), CUBE, False, id="a large ball"),
    ],
)
def test_what_rests_must_be_wholly_above_its_carrier(thing, carrier, rests):
    assert rests_on(thing, carrier) is rests


@pytest.mark.parametrize(
    ("thing", "carries"),
    [
        pytest.param(BOX, True, id="a closed box"),
        pytest.param(replace(BOX, pose="with its lid open"), False, id="an open box"),
        pytest.param(replace(CUBE, shape="ball"), False, id="a ball"),
        pytest.param(replace(CUBE, size="small"), False, id="a small cube"),
    ],
)
def test_carriers_are_flat_and_closed(thing, carries):
    assert thing.can_carry() is carries


def test_a_thing_behind_a_large_one_is_hidden():
    behind, beside = replace(BALL, y=1.0), replace(BALL, id="beside", x=1.2, y=1.0)
    shares = visible_shares(scene(CUBE, behind, beside), CAMERA)
    assert shares["cube"] == shares["beside"] == 1
    assert shares["ball"] < 0.35
    assert not all_visible(scene(CUBE, behind), CAMERA)
    assert all_visible(scene(CUBE, beside), CAMERA)
