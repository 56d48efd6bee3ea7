from dataclasses import replace

import cv2
import numpy as np

from pairwright.tasks.scenes.plan import all_visible, overlap, rests_on, stands_free, visible_shares
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Light, View

VIEW = View(0, 30, "a raised viewpoint from the front")
CAMERA = Camera(VIEW, 128, 96)
CUBE = Thing("cube", "cube", "red", "rubber", "large")
BALL = Thing("ball", "ball", "blue", "rubber", "small")


def scene(*things):
    return Scene("a photo studio", 0, VIEW, Light("left", "white"), things)


def test_overlap_agrees_with_opencv():
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        rectangles = [
            (
                (rng.uniform(0, 3), rng.uniform(0, 3)),
                tuple(rng.uniform(0.3, 2, 2)),
                rng.uniform(0, 180),
            )
            for _ in "ab"
        ]
        kind = cv2.rotatedRectangleIntersection(*rectangles)[0]
        a, b = (cv2.boxPoints(r).astype(float) for r in rectangles)
        found.append(kind != cv2.INTERSECT_NONE)
        assert overlap(a, b, gap=0) == found[-1]
    assert 60 < sum(found) < 240


def test_gap_between_two_cubes():
    # Two large cubes, 2 x 0.29 x 1.42 wide, side by side.
    wide = 2 * 0.29 * 1.42
    for space, free in ((0.04, False), (0.06, True)):
        for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            other = replace(CUBE, id="other", x=x * (wide + space), y=y * (wide + space))
            assert stands_free(other, scene(CUBE, other)) is free


def test_what_rests_must_be_wholly_above_its_carrier():
    top = replace(BALL, z=CUBE.height, support="cube")
    assert rests_on(top, CUBE)
    # The small ball is 0.46 wide, the flat top 0.766: 0.15 fits, 0.2 does not.
    assert rests_on(replace(top, x=0.15), CUBE)
    assert not rests_on(replace(top, x=0.2), CUBE)
    assert not rests_on(top, replace(CUBE, size="small"))
    assert not rests_on(replace(top, size="large"), CUBE)


def test_carriers_are_flat_and_closed():
    box = replace(CUBE, shape="box", pose="with its lid closed")
    assert box.can_carry()
    assert not replace(box, pose="with its lid open").can_carry()
    assert not replace(CUBE, shape="ball").can_carry()
    assert not replace(CUBE, size="small").can_carry()


def test_a_thing_behind_a_large_one_is_hidden():
    behind, beside = replace(BALL, y=1.0), replace(BALL, id="beside", x=1.2, y=1.0)
    shares = visible_shares(scene(CUBE, behind, beside), CAMERA)
    assert shares["cube"] == shares["beside"] == 1
    assert shares["ball"] < 0.35
    assert not all_visible(scene(CUBE, behind), CAMERA)
    assert all_visible(scene(CUBE, beside), CAMERA)
