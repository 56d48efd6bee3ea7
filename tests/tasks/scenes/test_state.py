from dataclasses import replace

import numpy as np
import pytest

from pairwright.tasks.scenes.state import TARGET, Camera, Position, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Light, View

FRONT = Camera(View(0, 30, "a raised viewpoint from the front"), 256, 192)
POINTS = {"left": (-1, 0), "right": (1, 0), "front": (0, 1), "back": (0, -1)}
"""Where the front of what faces so points on the photograph."""
CAR = Thing("car", "car", "red", "metal", "large", x=0.4, y=0.3)


@pytest.mark.parametrize(
    ("yaw", "facing"), [(0, "front"), (90, "right"), (180, "back"), (-90, "left")]
)
def test_facing_is_as_the_viewer_sees_it(yaw, facing) -> None:
    thing = replace(CAR, x=0.0, y=0.0, yaw=np.radians(yaw))
    assert FRONT.facing(thing)[0] == facing
    # The front of the car, from the middle of its hull: on the photograph it points the same way.
    ahead = np.array([np.sin(thing.yaw), -np.cos(thing.yaw), 0])
    step = FRONT.project(ahead) - FRONT.project(np.zeros(3))
    assert step @ POINTS[facing] > 0


BALL = Thing("ball", "ball", "red", "rubber", "small")
WORDS = ("left", "centre", "right"), ("front", "middle", "back")


@pytest.mark.parametrize(
    ("middle", "column", "clear"),
    # Thirds of 256 pixels meet at 85.3 and 170.7; 6 % of 256 are 15.4.
    [
        (40, 0, True),
        (69, 0, True),
        (71, 0, False),
        (85, 0, False),
        (86, 1, False),
        (102, 1, True),
        (154, 1, True),
        (156, 1, False),
        (171, 2, False),
        (187, 2, True),
    ],
)
def test_columns_are_thirds_of_the_picture(middle, column, clear) -> None:
    mask = np.zeros((192, 256), bool)
    mask[90:99, middle - 5 : middle + 5] = True
    place = FRONT.position_of(BALL, mask)
    assert (place.column, place.depth, place.clear) == (WORDS[0][column], "middle", clear)


@pytest.mark.parametrize(
    ("away", "depth", "clear"),
    # Of 3.6 metres around the target, thirds meet at 0.6 before and behind it; 6 % of 3.6 are
    # 0.216.
    [
        (-1.2, 0, True),
        (-0.82, 0, True),
        (-0.81, 0, False),
        (-0.59, 1, False),
        (-0.38, 1, True),
        (0.38, 1, True),
        (0.39, 1, False),
        (0.61, 2, False),
        (0.82, 2, True),
    ],
)
def test_depths_are_thirds_of_the_place(away, depth, clear) -> None:
    mask = np.zeros((192, 256), bool)
    mask[90:99, 123:133] = True
    place = FRONT.position_of(replace(BALL, y=TARGET[1] + away), mask)
    assert (place.column, place.depth, place.clear) == ("centre", WORDS[1][depth], clear)


def test_a_thing_is_elsewhere_where_both_places_are_clear_and_differ() -> None:
    here, there = Position("left", "front", clear=True), Position("left", "back", clear=True)
    assert here.is_clearly_not(there)
    assert not here.is_clearly_not(here)
    assert not here.is_clearly_not(replace(there, clear=False))
    assert not replace(here, clear=False).is_clearly_not(there)


@pytest.mark.parametrize("view", [View(0, 30, ""), View(13, 21, ""), View(-13, 41, "")])
def test_silhouettes_are_where_the_renderer_sees_things(view) -> None:
    from pairwright.tasks.scenes.render import survey

    things = (
        replace(CAR, yaw=0.6),
        Thing("cone", "cone", "blue", "rubber", "medium", x=-1.4, y=-0.5),
    )
    camera = replace(FRONT, view=view)
    seen = survey(Scene("a photo studio", 0, view, Light("left", "white"), things), camera)
    for thing in things:
        alone, mask = camera.silhouette(thing), seen.mask(thing.id)
        assert (alone & mask).sum() / (alone | mask).sum() > 0.93
        assert mask.sum() == pytest.approx(alone.sum(), rel=0.03)
