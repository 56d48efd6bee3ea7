"""Plan worlds: a place, a view, a light and 4 to 12 things, drawn until everything stands free and can be seen.

Reads and writes nothing. All randomness comes from the generator that is passed in.
"""

from dataclasses import replace

import numpy as np

from pairwright.tasks.sources.scene.arrange import all_visible, facings_clear, put_on_carrier, put_on_ground
from pairwright.tasks.sources.scene.camera import Camera
from pairwright.tasks.sources.scene.places import STYLES
from pairwright.tasks.sources.scene.state import Scene, Thing
from pairwright.tasks.sources.scene.vocabulary import (
    COLOURS,
    DIRECTIONS,
    HEIGHTS,
    METALLIC_COLOURS,
    SHAPES,
    SIDES,
    TEXTS,
    TINTS,
    Light,
    Size,
    View,
    view_phrase,
)

LEAST, MOST = 4, 12
"""Things of a world."""


def draw_view(rng: np.random.Generator, side: str, height: str) -> View:
    """Return a view that its phrase describes, a little off the standard one."""
    azimuth, elevation = SIDES[side] + float(rng.uniform(-1.5, 1.5)), HEIGHTS[height] + float(rng.uniform(-1, 1))
    return View(azimuth, elevation, view_phrase(side, height))


def draw_light(rng: np.random.Generator) -> Light:
    """Return any light; most are bright."""
    return Light(DIRECTIONS[int(rng.integers(3))], list(TINTS)[int(rng.integers(3))], dim=bool(rng.random() < 0.15))


def draw_look(rng: np.random.Generator, name: str, scene: Scene, *, shapes: list[str]) -> Thing | None:
    """Return a thing, not placed yet, that no words of the scene's things fit; ``None`` where all words are taken."""
    for _ in range(20):
        shape = shapes[int(rng.integers(len(shapes)))]
        kind = SHAPES[shape]
        material = kind.materials[int(rng.integers(len(kind.materials)))]
        colours = colours_of(shape, material)
        colour = colours[int(rng.integers(len(colours)))]
        size: Size = kind.sizes[int(rng.integers(len(kind.sizes)))]
        pose = kind.poses[int(rng.integers(len(kind.poses)))] if kind.poses else None
        text = TEXTS[int(rng.integers(len(TEXTS)))] if shape == "sign" else None
        thing = Thing(name, shape, colour, material, size, pose=pose, text=text)
        if is_distinct(thing, scene):
            return thing
    return None


def colours_of(shape: str, material: str) -> tuple[str, ...]:
    """Return the colours that things of a shape and a material show clearly: not white around white pages."""
    if material == "metal":
        return METALLIC_COLOURS
    return tuple(colour for colour in COLOURS if (shape, colour) != ("book", "white"))


def is_distinct(thing: Thing, scene: Scene) -> bool:
    """Say whether shape and colour alone tell the thing from all others, those of its own group apart."""
    return not any(
        (other.shape, other.colour) == (thing.shape, thing.colour)
        for other in scene.things
        if other.id != thing.id and (thing.group is None or other.group != thing.group)
    )


def draw_world(rng: np.random.Generator, place: str, *, width: int, height: int) -> Scene | None:
    """Return the scene of a world's base photograph, or nothing where too little found a place."""
    side, tall = list(SIDES)[int(rng.integers(3))], list(HEIGHTS)[int(rng.integers(3))]
    scene = Scene(place, int(rng.integers(STYLES)), draw_view(rng, side, tall), draw_light(rng), ())
    camera = plan_camera(scene.view, width=width, height=height)
    wanted = int(rng.choice(np.arange(LEAST, MOST + 1), p=(0.06, 0.12, 0.17, 0.18, 0.16, 0.12, 0.09, 0.06, 0.04)))
    for step in _steps(rng, wanted):
        scene = _add(rng, scene, step, camera) or scene
    good = LEAST <= len(scene.things) <= MOST and facings_clear(scene, camera) and all_visible(scene, camera)
    return scene if good else None


def plan_camera(view: View, *, width: int, height: int) -> Camera:
    """Return a coarse camera for plans, of the photograph's proportions."""
    return Camera(view, 128, max(16, round(128 * height / width)))


def _steps(rng: np.random.Generator, wanted: int) -> list[str]:
    """Return what to add, in order: large and special things first, fill up with single ones."""
    steps = []
    if rng.random() < 0.55:
        steps.append("sign")
    if rng.random() < 0.65:
        steps.append("stack")
    if rng.random() < 0.6:
        steps.append(f"group {int(rng.integers(2, 5))}")
    count = sum({"sign": 1, "stack": 2}.get(step, int(step[-1]) if step.startswith("group") else 0) for step in steps)
    return [*steps, *["single"] * max(1, wanted - count)]


def _add(rng: np.random.Generator, scene: Scene, step: str, camera: Camera) -> Scene | None:
    if len(scene.things) >= MOST:
        return None
    name = f"object-{len(scene.things) + 1:02d}"
    if step == "stack":
        return _add_stack(rng, scene, name, camera)
    if step.startswith("group"):
        return _add_group(rng, scene, int(step[-1]), camera)
    shapes = ["sign"] if step == "sign" else [shape for shape in SHAPES if shape != "sign"]
    thing = draw_look(rng, name, scene, shapes=shapes)
    return put_on_ground(rng, thing, scene, camera=camera) if thing else None


def _add_stack(rng: np.random.Generator, scene: Scene, name: str, camera: Camera) -> Scene | None:
    carrier = draw_look(rng, name, scene, shapes=["box", "book", "cube", "cylinder"])
    if carrier is None:
        return None
    poses = [pose for pose in SHAPES[carrier.shape].carries if pose]
    carrier = replace(carrier, size="large" if rng.random() < 0.6 else "medium", pose=poses[0] if poses else None)
    below = put_on_ground(rng, carrier, scene, camera=camera)
    if below is None:
        return None
    riders = [shape for shape, kind in SHAPES.items() if kind.rides]
    above = draw_look(rng, f"object-{len(below.things) + 1:02d}", below, shapes=riders)
    small = replace(above, size="small") if above else None
    return (put_on_carrier(rng, small, below, camera=camera) if small else None) or below


def _add_group(rng: np.random.Generator, scene: Scene, count: int, camera: Camera) -> Scene | None:
    shapes = [shape for shape, kind in SHAPES.items() if kind.repeats]
    first = draw_look(rng, "", scene, shapes=shapes)
    if first is None:
        return None
    first = replace(first, size="small" if rng.random() < 0.6 else "medium", group="group-1")
    for _ in range(count):
        scene = add_like(rng, first, scene, camera=camera, name=f"object-{len(scene.things) + 1:02d}") or scene
    return scene


def add_like(rng: np.random.Generator, like: Thing, scene: Scene, *, camera: Camera, name: str) -> Scene | None:
    """Return the scene with one more thing of a group, on the ground."""
    return put_on_ground(rng, replace(like, id=name), scene, camera=camera)
