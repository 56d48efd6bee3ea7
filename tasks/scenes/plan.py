"""Plan worlds: a place, a view, a light and 4 to 12 things, drawn until all stand free and are visible.

Reads and writes nothing. All randomness comes from the generator that is passed in.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from pairwright.tasks.scenes import vocabulary
from pairwright.tasks.scenes.places import STYLES
from pairwright.tasks.scenes.shapes import Soup, extent_of
from pairwright.tasks.scenes.state import SURE_DEGREES, Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Facing, Light, View

T = TypeVar("T")
AREA = ((-2.2, 2.2), (-1.55, 1.85))
"""Ranges of x and y for things."""
GAP = 0.05
MIN_VISIBLE = 0.5
"""Least visible share of a thing in a photograph."""
PLANNED_VISIBLE = 0.6
"""Least visible share in a plan, above ``MIN_VISIBLE`` as plans are coarser than photographs."""
DRAWS = 60
"""Positions tried before a thing is given up."""
TURNS = 5
LEAST, MOST = 4, 12
"""Things of a world."""


_silhouette = lru_cache(maxsize=512)(Camera.silhouette)


def overlap(a: Soup, b: Soup, *, gap: float = GAP) -> bool:
    """Return whether two rectangles (four corners each) are closer than a gap, by their separating axes."""
    for corners in (a, b):
        for side in (corners[1] - corners[0], corners[2] - corners[1]):
            axis = side / np.linalg.norm(side)
            first, second = a @ axis, b @ axis
            if first.max() + gap <= second.min() or second.max() + gap <= first.min():
                return False
    return True


def stands_free(thing: Thing, scene: Scene) -> bool:
    """Return whether a thing keeps its distance from all others but its carrier and its load."""
    corners = thing.footprint()[1]
    stack = {thing.id, thing.support} - {None}
    others = (other for other in scene.things if not stack & {other.id, other.support})
    return not any(overlap(corners, other.footprint()[1]) for other in others)


def rests_on(thing: Thing, carrier: Thing) -> bool:
    """Return whether the middles of all sides of a thing's footprint are above the flat top of its carrier.

    The corners need not be: a round thing has none, and an angular one stands on the rest.
    """
    centre, half, _ = extent_of(carrier.shape, carrier.pose)
    turn = np.array(
        [(np.cos(carrier.yaw), np.sin(carrier.yaw)), (-np.sin(carrier.yaw), np.cos(carrier.yaw))]
    )
    corners = thing.footprint()[1]
    middles = (corners + np.roll(corners, 1, axis=0)) / 2
    local = (middles - (carrier.x, carrier.y)) @ turn.T - np.array(centre) * carrier.scale
    share = local / (np.array(half) * carrier.scale)
    reach = (
        np.linalg.norm(share, axis=1) if carrier.shape == "cylinder" else np.abs(share).max(axis=1)
    )
    return carrier.can_carry() and bool((reach <= 0.93).all())


def visible_shares(scene: Scene, camera: Camera) -> dict[str, float]:
    """Return the share of each thing that nearer things leave visible; loads cover their carriers."""
    hidden = np.zeros((camera.height, camera.width), bool)
    shares = {}
    for thing in sorted(
        scene.things, key=lambda t: (camera.distance(t) - 0.02 * bool(t.support), t.id)
    ):
        shape = _silhouette(camera, thing)
        shares[thing.id] = 1 - float((shape & hidden).sum()) / max(1, int(shape.sum()))
        hidden |= shape
    return shares


def all_visible(scene: Scene, camera: Camera) -> bool:
    """Return whether every thing is wholly in the photograph and mostly visible."""
    framed = all(camera.frames(thing) for thing in scene.things)
    return framed and min(visible_shares(scene, camera).values()) >= PLANNED_VISIBLE


def facings_clear(scene: Scene, camera: Camera) -> bool:
    """Return whether every facing is clear."""
    facing = [thing for thing in scene.things if vocabulary.SHAPES[thing.shape].front]
    return all(camera.facing(thing)[1] <= SURE_DEGREES for thing in facing)


def fits(scene: Scene, thing: Thing, camera: Camera) -> bool:
    """Return whether a scene is valid with this new or altered thing of it."""
    rests = thing.support is None or rests_on(thing, scene.thing(thing.support))
    return rests and stands_free(thing, scene) and all_visible(scene, camera)


def turn_to(
    rng: np.random.Generator, thing: Thing, camera: Camera, *, facing: Facing | None = None
) -> Thing:
    """Return the thing turned to a clear facing, or at random if it has no front."""
    if thing.shape == "sign":
        return replace(thing, yaw=camera.yaw(thing, "front", off_degrees=float(rng.uniform(-9, 9))))
    if not vocabulary.SHAPES[thing.shape].front:
        return replace(thing, yaw=float(rng.uniform(-np.pi, np.pi)))
    way = facing or vocabulary.FACINGS[int(rng.choice(4, p=(0.32, 0.32, 0.28, 0.08)))]
    return replace(thing, yaw=camera.yaw(thing, way, off_degrees=float(rng.uniform(-15, 15))))


def put_on_ground(
    rng: np.random.Generator, thing: Thing, scene: Scene, *, camera: Camera
) -> Scene | None:
    """Return the scene with the thing on the ground; ``None`` if no position was found."""
    for _ in range(DRAWS):
        x, y = (float(rng.uniform(*span)) for span in AREA)
        put = turn_to(rng, replace(thing, x=x, y=y, z=0.0, support=None), camera)
        if stands_free(put, scene) and fits(scene.having(put), put, camera):
            return scene.having(put)
    return None


def put_on_carrier(
    rng: np.random.Generator, thing: Thing, scene: Scene, *, camera: Camera
) -> Scene | None:
    """Return the scene with the thing on a free carrier; ``None`` if there is none."""
    carried = {other.support for other in scene.things}
    carriers = [
        other
        for other in scene.things
        if other.can_carry() and other.id not in carried and not other.group
    ]
    for carrier in (carriers[int(k)] for k in rng.permutation(len(carriers))):
        centre = carrier.footprint()[0]
        put = replace(
            thing,
            x=float(centre[0]),
            y=float(centre[1]),
            z=carrier.z + carrier.height,
            support=carrier.id,
        )
        for turned in (turn_to(rng, put, camera) for _ in range(TURNS)):
            if fits(scene.having(turned), turned, camera):
                return scene.having(turned)
    return None


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """Return one of some options."""
    return options[int(rng.integers(len(options)))]


def draw_view(rng: np.random.Generator, side: str, height: str) -> View:
    """Return a view near the standard one of its phrase."""
    azimuth = vocabulary.SIDES[side] + float(rng.uniform(-1.5, 1.5))
    elevation = vocabulary.HEIGHTS[height] + float(rng.uniform(-1, 1))
    return View(azimuth, elevation, vocabulary.view_phrase(side, height))


def draw_light(rng: np.random.Generator) -> Light:
    """Return a random light, mostly a bright one."""
    return Light(
        pick(rng, vocabulary.DIRECTIONS),
        pick(rng, list(vocabulary.TINTS)),
        dim=bool(rng.random() < 0.15),
    )


def draw_look(
    rng: np.random.Generator, name: str, scene: Scene, *, shapes: list[str]
) -> Thing | None:
    """Return an unplaced thing with words of its own; ``None`` if all words are taken."""
    for _ in range(20):
        shape = pick(rng, shapes)
        kind = vocabulary.SHAPES[shape]
        material = pick(rng, kind.materials)
        colour = pick(rng, vocabulary.colours_of(shape, material))
        size = pick(rng, kind.sizes)
        pose = pick(rng, kind.poses) if kind.poses else None
        text = pick(rng, vocabulary.TEXTS) if shape == "sign" else None
        thing = Thing(
            name,
            shape,
            colour,
            material,
            size,
            pose=pose,
            text=text,
            wear=round(float(rng.random()), 3),
        )
        if is_distinct(thing, scene):
            return thing
    return None


def is_distinct(thing: Thing, scene: Scene) -> bool:
    """Return whether shape and colour distinguish the thing from all others outside its group."""
    return not any(
        (other.shape, other.colour) == (thing.shape, thing.colour)
        for other in scene.things
        if other.id != thing.id and (thing.group is None or other.group != thing.group)
    )


def draw_world(rng: np.random.Generator, place: str, *, width: int, height: int) -> Scene | None:
    """Return the scene of a world's base photograph; ``None`` if too few things found a position."""
    side, tall = pick(rng, list(vocabulary.SIDES)), pick(rng, list(vocabulary.HEIGHTS))
    scene = Scene(place, int(rng.integers(STYLES)), draw_view(rng, side, tall), draw_light(rng), ())
    camera = plan_camera(scene.view, width=width, height=height)
    wanted = int(
        rng.choice(
            np.arange(LEAST, MOST + 1), p=(0.06, 0.12, 0.17, 0.18, 0.16, 0.12, 0.09, 0.06, 0.04)
        )
    )
    # Large and special things come first, then single ones.
    sign, stack = rng.random() < 0.55, rng.random() < 0.65
    group = int(rng.integers(2, 5)) if rng.random() < 0.6 else 0
    others = [shape for shape in vocabulary.SHAPES if shape != "sign"]
    scene = _add_single(rng, scene, ["sign"], camera) if sign else scene
    scene = _add_stack(rng, scene, camera) if stack else scene
    scene = _add_group(rng, scene, group, camera) if group else scene
    for _ in range(max(1, wanted - sign - 2 * stack - group)):
        scene = _add_single(rng, scene, others, camera)
    good = (
        LEAST <= len(scene.things) <= MOST
        and facings_clear(scene, camera)
        and all_visible(scene, camera)
    )
    return scene if good else None


def plan_camera(view: View, *, width: int, height: int) -> Camera:
    """Return a coarse camera for plans, with the photograph's proportions."""
    return Camera(view, 128, max(16, round(128 * height / width)))


def _add_single(rng: np.random.Generator, scene: Scene, shapes: list[str], camera: Camera) -> Scene:
    if len(scene.things) >= MOST:
        return scene
    thing = draw_look(rng, f"object-{len(scene.things) + 1:02d}", scene, shapes=shapes)
    return (put_on_ground(rng, thing, scene, camera=camera) if thing else None) or scene


def _add_stack(rng: np.random.Generator, scene: Scene, camera: Camera) -> Scene:
    shapes = ["box", "book", "cube", "cylinder"]
    carrier = draw_look(rng, f"object-{len(scene.things) + 1:02d}", scene, shapes=shapes)
    if carrier is None:
        return scene
    poses = [pose for pose in vocabulary.SHAPES[carrier.shape].carries if pose]
    carrier = replace(
        carrier, size="large" if rng.random() < 0.6 else "medium", pose=poses[0] if poses else None
    )
    below = put_on_ground(rng, carrier, scene, camera=camera)
    if below is None:
        return scene
    riders = [shape for shape, kind in vocabulary.SHAPES.items() if kind.rides]
    above = draw_look(rng, f"object-{len(below.things) + 1:02d}", below, shapes=riders)
    small = replace(above, size="small") if above else None
    return (put_on_carrier(rng, small, below, camera=camera) if small else None) or below


def _add_group(rng: np.random.Generator, scene: Scene, count: int, camera: Camera) -> Scene:
    shapes = [shape for shape, kind in vocabulary.SHAPES.items() if kind.repeats]
    first = draw_look(rng, "", scene, shapes=shapes)
    if first is None:
        return scene
    first = replace(first, size="small" if rng.random() < 0.6 else "medium", group="group-1")
    for _ in range(count):
        thing = replace(first, id=f"object-{len(scene.things) + 1:02d}")
        scene = put_on_ground(rng, thing, scene, camera=camera) or scene
    return scene
