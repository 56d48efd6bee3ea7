"""Plan worlds: a place, a view, a light and 4 to 12 objects, until all are visible and apart.

Reads and writes nothing. All randomness comes from the generator that is passed in.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from pairwright.tasks.scenes import vocabulary
from pairwright.tasks.scenes.meshes import Soup
from pairwright.tasks.scenes.pictures import Rng
from pairwright.tasks.scenes.places import STYLES
from pairwright.tasks.scenes.shapes import extent_of
from pairwright.tasks.scenes.state import SURE_DEGREES, Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Facing, Light, View

T = TypeVar("T")
AREA = ((-2.2, 2.2), (-1.55, 1.85))
"""Ranges of x and y for objects."""
GAP = 0.05
MIN_VISIBLE = 0.5
"""Least visible share of an object in a photograph."""
PLANNED_VISIBLE = 0.6
"""Least visible share in a plan, above ``MIN_VISIBLE`` as plans are coarser than photographs."""
DRAWS = 60
"""Positions tried before an object is given up."""
TURNS = 5
LEAST = 4
MOST = 12
"""Objects of a world."""
COUNT_SHARES = (0.06, 0.12, 0.17, 0.18, 0.16, 0.12, 0.09, 0.06, 0.04)
"""Shares of worlds with ``LEAST`` to ``MOST`` objects."""
FACING_SHARES = (0.32, 0.32, 0.28, 0.08)
"""Shares of the facings: most objects do not face the back."""


_silhouette = lru_cache(maxsize=512)(Camera.silhouette)


def overlap(a: Soup, b: Soup, *, gap: float = GAP) -> bool:
    """Return whether two rectangles (four corners) are closer than a gap, by separating axes."""
    for corners in (a, b):
        for side in (corners[1] - corners[0], corners[2] - corners[1]):
            axis = side / np.linalg.norm(side)
            first = a @ axis
            second = b @ axis
            if first.max() + gap <= second.min() or second.max() + gap <= first.min():
                return False
    return True


def stands_free(item: Thing, scene: Scene) -> bool:
    """Return whether an object keeps its distance from all others but its carrier and its load."""
    _, corners = item.footprint()
    stack = {item.id, item.support} - {None}
    for other in scene.things:
        if stack & {other.id, other.support}:
            continue
        _, other_corners = other.footprint()
        if overlap(corners, other_corners):
            return False
    return True


def rests_on(item: Thing, carrier: Thing) -> bool:
    """Return whether an object rests on the flat top of its carrier.

    The middles of all sides of its footprint must be above the top. The corners need not be: a
    round object has none, and an angular one stands on the rest.
    """
    centre, half, _ = extent_of(carrier.shape, carrier.pose)
    cos = np.cos(carrier.yaw)
    sin = np.sin(carrier.yaw)
    turn = np.array([(cos, sin), (-sin, cos)])
    _, corners = item.footprint()
    middles = (corners + np.roll(corners, 1, axis=0)) / 2
    local = (middles - (carrier.x, carrier.y)) @ turn.T - np.array(centre) * carrier.scale
    share = local / (np.array(half) * carrier.scale)
    if carrier.shape == "cylinder":
        reach = np.linalg.norm(share, axis=1)
    else:
        reach = np.abs(share).max(axis=1)
    return carrier.can_carry() and bool((reach <= 0.93).all())


def visible_shares(scene: Scene, camera: Camera) -> dict[str, float]:
    """Return the share of each object that nearer ones leave visible; loads cover carriers."""

    def by_distance(item: Thing) -> tuple[float, str]:
        return camera.distance(item) - 0.02 * bool(item.support), item.id

    hidden = np.zeros((camera.height, camera.width), bool)
    shares: dict[str, float] = {}
    for item in sorted(scene.things, key=by_distance):
        shape = _silhouette(camera, item)
        covered = float((shape & hidden).sum())
        shares[item.id] = 1 - covered / max(1, int(shape.sum()))
        hidden |= shape
    return shares


def all_visible(scene: Scene, camera: Camera) -> bool:
    """Return whether every object is wholly in the photograph and mostly visible."""
    if not all(camera.frames(item) for item in scene.things):
        return False
    return min(visible_shares(scene, camera).values()) >= PLANNED_VISIBLE


def facings_clear(scene: Scene, camera: Camera) -> bool:
    """Return whether every facing is clear."""
    for item in scene.things:
        if vocabulary.SHAPES[item.shape].front:
            _, degrees = camera.facing(item)
            if degrees > SURE_DEGREES:
                return False
    return True


def fits(scene: Scene, item: Thing, camera: Camera) -> bool:
    """Return whether a scene is valid with this new or altered object of it."""
    if item.support is not None and not rests_on(item, scene.thing(item.support)):
        return False
    return stands_free(item, scene) and all_visible(scene, camera)


def turn_to(
    rng: Rng,
    item: Thing,
    camera: Camera,
    *,
    facing: Facing | None = None,
) -> Thing:
    """Return the object turned to a clear facing, or at random if it has no front."""
    if item.shape == "sign":
        off_degrees = float(rng.uniform(-9, 9))
        return replace(item, yaw=camera.yaw(item, "front", off_degrees=off_degrees))
    if not vocabulary.SHAPES[item.shape].front:
        return replace(item, yaw=float(rng.uniform(-np.pi, np.pi)))
    if facing is None:
        facing = vocabulary.FACINGS[int(rng.choice(4, p=FACING_SHARES))]
    off_degrees = float(rng.uniform(-15, 15))
    return replace(item, yaw=camera.yaw(item, facing, off_degrees=off_degrees))


def draw_position(rng: Rng) -> tuple[float, float]:
    """Return a random position on the ground."""
    x = float(rng.uniform(*AREA[0]))
    y = float(rng.uniform(*AREA[1]))
    return x, y


def put_on_ground(
    rng: Rng,
    item: Thing,
    scene: Scene,
    *,
    camera: Camera,
) -> Scene | None:
    """Return the scene with the object on the ground; ``None`` if no position was found."""
    for _ in range(DRAWS):
        x, y = draw_position(rng)
        standing = replace(
            item,
            x=x,
            y=y,
            z=0.0,
            support=None,
        )
        turned = turn_to(rng, standing, camera)
        if stands_free(turned, scene) and fits(scene.having(turned), turned, camera):
            return scene.having(turned)
    return None


def put_on_carrier(
    rng: Rng,
    item: Thing,
    scene: Scene,
    *,
    camera: Camera,
) -> Scene | None:
    """Return the scene with the object on a free carrier; ``None`` if there is none."""
    carriers = _free_carriers(scene)
    for index in rng.permutation(len(carriers)):
        carrier = carriers[int(index)]
        centre, _ = carrier.footprint()
        riding = replace(
            item,
            x=float(centre[0]),
            y=float(centre[1]),
            z=carrier.z + carrier.height,
            support=carrier.id,
        )
        for _ in range(TURNS):
            turned = turn_to(rng, riding, camera)
            if fits(scene.having(turned), turned, camera):
                return scene.having(turned)
    return None


def _free_carriers(scene: Scene) -> list[Thing]:
    carrying = {item.support for item in scene.things}
    return [
        item
        for item in scene.things
        if item.can_carry() and item.id not in carrying and not item.group
    ]


def pick(rng: Rng, options: Sequence[T]) -> T:
    """Return one of some options."""
    return options[int(rng.integers(len(options)))]


def draw_view(rng: Rng, side: str, height: str) -> View:
    """Return a view near the standard one of its phrase."""
    azimuth = vocabulary.SIDES[side] + float(rng.uniform(-1.5, 1.5))
    elevation = vocabulary.HEIGHTS[height] + float(rng.uniform(-1, 1))
    return View(azimuth, elevation, vocabulary.view_phrase(side, height))


def draw_light(rng: Rng) -> Light:
    """Return a random light, mostly a bright one."""
    direction = pick(rng, vocabulary.DIRECTIONS)
    tint = pick(rng, list(vocabulary.TINTS))
    return Light(direction, tint, dim=bool(rng.random() < 0.15))


def draw_look(
    rng: Rng,
    name: str,
    scene: Scene,
    *,
    shapes: list[str],
) -> Thing | None:
    """Return an unplaced object with words of its own; ``None`` if all words are taken."""
    for _ in range(20):
        shape = pick(rng, shapes)
        kind = vocabulary.SHAPES[shape]
        material = pick(rng, kind.materials)
        colour = pick(rng, vocabulary.colours_of(shape, material))
        size = pick(rng, kind.sizes)
        pose = pick(rng, kind.poses) if kind.poses else None
        text = pick(rng, vocabulary.TEXTS) if shape == "sign" else None
        wear = round(float(rng.random()), 3)
        item = Thing(
            name,
            shape,
            colour,
            material,
            size,
            pose=pose,
            text=text,
            wear=wear,
        )
        if is_distinct(item, scene):
            return item
    return None


def is_distinct(item: Thing, scene: Scene) -> bool:
    """Return whether shape and colour distinguish the object from all others outside its group."""
    for other in scene.things:
        if other.id == item.id:
            continue
        if item.group is not None and other.group == item.group:
            continue
        if (other.shape, other.colour) == (item.shape, item.colour):
            return False
    return True


def draw_world(
    rng: Rng,
    place: str,
    *,
    width: int,
    height: int,
) -> Scene | None:
    """Return the scene of a world's base photograph; ``None`` if too few objects fit."""
    scene = _draw_empty(rng, place)
    camera = plan_camera(scene.view, width=width, height=height)
    count = int(rng.choice(np.arange(LEAST, MOST + 1), p=COUNT_SHARES))
    has_sign = rng.random() < 0.55
    has_stack = rng.random() < 0.65
    group = int(rng.integers(2, 5)) if rng.random() < 0.6 else 0
    # Large and special objects come first, then single ones.
    if has_sign:
        scene = _add_single(rng, scene, ["sign"], camera)
    if has_stack:
        scene = _add_stack(rng, scene, camera)
    if group:
        scene = _add_group(rng, scene, group, camera)
    shapes = [shape for shape in vocabulary.SHAPES if shape != "sign"]
    for _ in range(max(1, count - has_sign - 2 * has_stack - group)):
        scene = _add_single(rng, scene, shapes, camera)
    return scene if _is_world(scene, camera) else None


def _draw_empty(rng: Rng, place: str) -> Scene:
    side = pick(rng, list(vocabulary.SIDES))
    height = pick(rng, list(vocabulary.HEIGHTS))
    style = int(rng.integers(STYLES))
    view = draw_view(rng, side, height)
    light = draw_light(rng)
    return Scene(place, style, view, light, ())


def _is_world(scene: Scene, camera: Camera) -> bool:
    if not LEAST <= len(scene.things) <= MOST:
        return False
    return facings_clear(scene, camera) and all_visible(scene, camera)


def plan_camera(view: View, *, width: int, height: int) -> Camera:
    """Return a coarse camera for plans, with the photograph's proportions."""
    return Camera(view, 128, max(16, round(128 * height / width)))


def _next_name(scene: Scene) -> str:
    return f"object-{len(scene.things) + 1:02d}"


def _add_single(
    rng: Rng,
    scene: Scene,
    shapes: list[str],
    camera: Camera,
) -> Scene:
    if len(scene.things) >= MOST:
        return scene
    item = draw_look(
        rng,
        _next_name(scene),
        scene,
        shapes=shapes,
    )
    if item is None:
        return scene
    return (
        put_on_ground(
            rng,
            item,
            scene,
            camera=camera,
        )
        or scene
    )


def _add_stack(rng: Rng, scene: Scene, camera: Camera) -> Scene:
    shapes = ["box", "book", "cube", "cylinder"]
    carrier = draw_look(
        rng,
        _next_name(scene),
        scene,
        shapes=shapes,
    )
    if carrier is None:
        return scene
    size = "large" if rng.random() < 0.6 else "medium"
    poses = [pose for pose in vocabulary.SHAPES[carrier.shape].carries if pose]
    carrier = replace(carrier, size=size, pose=poses[0] if poses else None)
    below = put_on_ground(
        rng,
        carrier,
        scene,
        camera=camera,
    )
    if below is None:
        return scene
    riders = [shape for shape, kind in vocabulary.SHAPES.items() if kind.rides]
    rider = draw_look(
        rng,
        _next_name(below),
        below,
        shapes=riders,
    )
    if rider is None:
        return below
    small = replace(rider, size="small")
    return (
        put_on_carrier(
            rng,
            small,
            below,
            camera=camera,
        )
        or below
    )


def _add_group(
    rng: Rng,
    scene: Scene,
    count: int,
    camera: Camera,
) -> Scene:
    shapes = [shape for shape, kind in vocabulary.SHAPES.items() if kind.repeats]
    first = draw_look(
        rng,
        "",
        scene,
        shapes=shapes,
    )
    if first is None:
        return scene
    size = "small" if rng.random() < 0.6 else "medium"
    first = replace(first, size=size, group="group-1")
    for _ in range(count):
        item = replace(first, id=_next_name(scene))
        scene = (
            put_on_ground(
                rng,
                item,
                scene,
                camera=camera,
            )
            or scene
        )
    return scene
