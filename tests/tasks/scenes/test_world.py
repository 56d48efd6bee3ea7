import numpy as np
import pytest

from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.scenes.changes import Draft
from pairwright.tasks.scenes.render import survey
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Light, View
from pairwright.tasks.scenes.world import describe_photograph

VIEW = View(0, 41, "a high viewpoint from the front")
CAMERA = Camera(VIEW, 128, 96)


def look(*things):
    scene = Scene("a photo studio", 0, VIEW, Light("left", "warm", dim=True), things)
    seen = survey(scene, CAMERA)
    return seen, describe_photograph(
        Draft(scene, CAMERA, 1), CAMERA, seen, world="world-00001", number=2
    )


def ball(name, **where):
    return Thing(name, "ball", "red", "rubber", "medium", **where)


def test_what_a_thing_rests_on_is_named() -> None:
    cube = Thing("object-1", "cube", "blue", "rubber", "large")
    graph = look(cube, ball("object-2", z=cube.height, support="object-1"))[1]
    rests = [(thing.support, thing.rests_on) for thing in graph.objects]
    assert rests == [(None, None), ("object-1", "cube")]


def test_visible_share_of_a_half_hidden_thing() -> None:
    # A medium ball, 0.68 wide, behind a large cube of 0.82: its upper part shows.
    free = look(ball("object-1", y=1.2))[1].objects[0]
    cube = Thing("object-2", "cube", "blue", "rubber", "large", y=0.3)
    hidden = look(ball("object-1", y=1.2), cube)[1].objects[0]
    assert free.visible > 0.95
    shown = decode_mask(hidden.mask).sum() / decode_mask(free.mask).sum()
    assert 0.1 < shown < 0.9
    assert hidden.visible == pytest.approx(shown, abs=0.06)


def test_changed_pixels_are_those_of_the_thing() -> None:
    before, _ = look(ball("object-1"), ball("object-2", x=1.5))
    after, _ = look(ball("object-2", x=1.5))
    gone = before.mask("object-1")
    assert before.count_changed(after, {"object-1"}) == gone.sum() > 100
    assert before.count_changed(after, {"object-2"}) == 0
    assert not np.any(after.mask("object-1"))
