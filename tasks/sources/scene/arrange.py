"""Arrange things: where they may stand without touching, out of the frame, or hiding one another.

Reads and writes nothing. All randomness comes from the generator that is passed in.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from pairwright.tasks.sources.scene.camera import SURE_DEGREES, Camera, Mask
from pairwright.tasks.sources.scene.mesh import Soup
from pairwright.tasks.sources.scene.shapes import extent_of
from pairwright.tasks.sources.scene.state import Scene, Thing
from pairwright.tasks.sources.scene.vocabulary import FACINGS, SHAPES, Facing

AREA = ((-2.2, 2.2), (-1.55, 1.85))
"""x and y within which things stand."""
GAP = 0.05
"""Least distance between footprints."""
MIN_VISIBLE = 0.5
"""Least visible share of a thing in a photograph."""
PLANNED_VISIBLE = 0.6
"""Least visible share that a plan asks for; more than ``MIN_VISIBLE``, for plans are coarser than photographs."""
DRAWS = 60
"""Places tried before a thing is given up."""
TURNS = 5
"""Turns tried on each carrier."""


def overlap(a: Soup, b: Soup, *, gap: float = GAP) -> bool:
    """Say whether two rectangles (four corners each) come closer than a gap, by their separating axes."""
    for corners in (a, b):
        for side in (corners[1] - corners[0], corners[2] - corners[1]):
            axis = side / np.linalg.norm(side)
            first, second = a @ axis, b @ axis
            if first.max() + gap <= second.min() or second.max() + gap <= first.min():
                return False
    return True


def stands_free(thing: Thing, scene: Scene) -> bool:
    """Say whether a thing keeps its distance from all others; what carries it, or rests on it, does not count."""
    corners = thing.footprint()[1]
    return not any(
        overlap(corners, other.footprint()[1])
        for other in scene.things
        if other.id != thing.id and not _stacked(thing, other)
    )


def _stacked(a: Thing, b: Thing) -> bool:
    return b.id == a.support or a.id == b.support or (a.support is not None and a.support == b.support)


def rests_on(thing: Thing, carrier: Thing) -> bool:
    """Say whether the middles of all sides of a thing's footprint are above the flat top of its carrier.

    The corners need not be: under a round thing nothing is there, and an angular one stands on the rest.
    """
    centre, half, _ = extent_of(carrier.shape, carrier.pose)
    turn = np.array([(np.cos(carrier.yaw), np.sin(carrier.yaw)), (-np.sin(carrier.yaw), np.cos(carrier.yaw))])
    corners = thing.footprint()[1]
    middles = (corners + np.roll(corners, 1, axis=0)) / 2
    local = (middles - (carrier.x, carrier.y)) @ turn.T - np.array(centre) * carrier.scale
    share = local / (np.array(half) * carrier.scale)
    reach = np.linalg.norm(share, axis=1) if carrier.shape == "cylinder" else np.abs(share).max(axis=1)
    return carrier.can_carry() and bool((reach <= 0.93).all())


@lru_cache(maxsize=512)
def _silhouette(camera: Camera, thing: Thing) -> Mask:
    return camera.silhouette(thing)


def visible_shares(scene: Scene, camera: Camera) -> dict[str, float]:
    """Return the share of each thing that nearer things leave to see; what is carried covers its carrier."""
    hidden = np.zeros((camera.height, camera.width), bool)
    shares = {}
    for thing in sorted(scene.things, key=lambda t: (camera.distance(t) - 0.02 * bool(t.support), t.id)):
        shape = _silhouette(camera, thing)
        shares[thing.id] = 1 - float((shape & hidden).sum()) / max(1, int(shape.sum()))
        hidden |= shape
    return shares


def all_visible(scene: Scene, camera: Camera) -> bool:
    """Say whether every thing is wholly in the photograph and hidden by little."""
    if not all(camera.frames(thing) for thing in scene.things):
        return False
    return min(visible_shares(scene, camera).values()) >= PLANNED_VISIBLE


def facings_clear(scene: Scene, camera: Camera) -> bool:
    """Say whether nobody would argue about which way a thing faces."""
    return all(camera.facing(thing)[1] <= SURE_DEGREES for thing in scene.things if SHAPES[thing.shape].front)


def fits(scene: Scene, thing: Thing, camera: Camera) -> bool:
    """Say whether a scene holds once this thing of it was put there or altered."""
    if thing.support is not None and not rests_on(thing, scene.thing(thing.support)):
        return False
    return stands_free(thing, scene) and all_visible(scene, camera)


def turn_to(rng: np.random.Generator, thing: Thing, camera: Camera, *, facing: Facing | None = None) -> Thing:
    """Return the thing turned some way: to a clear facing where it has a front, else anyhow."""
    if thing.shape == "sign":
        return replace(thing, yaw=camera.yaw(thing, "front", off_degrees=float(rng.uniform(-9, 9))))
    if not SHAPES[thing.shape].front:
        return replace(thing, yaw=float(rng.uniform(-np.pi, np.pi)))
    way = facing or FACINGS[int(rng.choice(4, p=(0.32, 0.32, 0.28, 0.08)))]
    return replace(thing, yaw=camera.yaw(thing, way, off_degrees=float(rng.uniform(-15, 15))))


def put_on_ground(rng: np.random.Generator, thing: Thing, scene: Scene, *, camera: Camera) -> Scene | None:
    """Return the scene with the thing somewhere on the ground, or nothing where no place was found."""
    for _ in range(DRAWS):
        x, y = (float(rng.uniform(*span)) for span in AREA)
        put = turn_to(rng, replace(thing, x=x, y=y, z=0.0, support=None), camera)
        if stands_free(put, scene) and fits(scene.having(put), put, camera):
            return scene.having(put)
    return None


def put_on_carrier(rng: np.random.Generator, thing: Thing, scene: Scene, *, camera: Camera) -> Scene | None:
    """Return the scene with the thing resting on one that carries nothing yet."""
    carried = {other.support for other in scene.things}
    carriers = [other for other in scene.things if other.can_carry() and other.id not in carried and not other.group]
    for carrier in (carriers[int(k)] for k in rng.permutation(len(carriers))):
        centre = carrier.footprint()[0]
        put = replace(thing, x=float(centre[0]), y=float(centre[1]), z=carrier.z + carrier.height, support=carrier.id)
        for turned in (turn_to(rng, put, camera) for _ in range(TURNS)):
            if fits(scene.having(turned), turned, camera):
                return scene.having(turned)
    return None
