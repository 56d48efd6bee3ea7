"""Make the photographs of one planted world: pixels, scene graphs, and the covered original.

Needs Mitsuba: import this module only to render.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pairwright.schemas.config import PlantedConfig
from pairwright.schemas.scene import Covered, SceneChange, SceneGraph, SceneObject
from pairwright.tasks.images.decode import RGB, encode_png
from pairwright.tasks.images.masks import box_of, encode_mask
from pairwright.tasks.planting.cut_things import (
    Cutout,
    CutThing,
    cut_out,
    draw_cut_things,
)
from pairwright.tasks.planting.draw_planting import (
    PLACE,
    Planting,
    change_planting,
    column_of,
    draw_planting,
)
from pairwright.tasks.planting.find_faces import find_faces
from pairwright.tasks.planting.find_spots import Box, Spot, find_spots
from pairwright.tasks.planting.photo_state import PhotoState, draw_other_state, draw_state
from pairwright.tasks.planting.plant import (
    ELEVATION,
    FRONT,
    Planted,
    Render,
    find_direction,
    frame,
    plant,
    render_cutout,
    render_thing,
)
from pairwright.tasks.planting.read_outlines import Outline, Outlines
from pairwright.tasks.scenes.pictures import Rng
from pairwright.tasks.scenes.state import Mask, Thing
from pairwright.tasks.scenes.vocabulary import SHAPES, Direction

ATTEMPTS = 12
WORLDS = 3  # bases that are tried
NO_OUTLINES = Outlines()
MOST_CUT = 6  # things of other photographs that one photograph chooses from
MIN_SHARE = 0.003
"""Least share of a photograph's pixels that a thing covers (ours): 49 x 48 of 1,024 x 768."""
MIN_PIXELS = 300  # of a thing (ours): 20 x 15
MIN_SIGN = 40  # pixels across, as of rendered scenes
MIN_CONTRAST = 25.0
"""Least contrast of a thing with what it covers: a black mug in the night sky is not seen."""
MIN_LEVELS = 12.0
"""Least mean difference, in levels of 255, between a changed thing's pixels before and after."""


@dataclass(frozen=True, slots=True)
class PlantedPhotograph:
    """Photograph with planted things."""

    pixels: RGB
    graph: SceneGraph


@dataclass(frozen=True, slots=True)
class _Exposed:
    """Photograph before its own state is applied."""

    planting: Planting
    pixels: RGB
    things: Mapping[str, Planted]


class Planter:
    """Plants things into one photograph; renders each thing at a spot once."""

    def __init__(
        self,
        photograph: RGB,
        config: PlantedConfig,
        seeds: tuple[int, ...],
        cut_things: Sequence[CutThing] = (),
    ) -> None:
        self.photograph = photograph
        self._samples = config.samples_per_pixel
        self._seeds = seeds
        self._direction: Direction = find_direction(photograph)
        self._renders: dict[tuple[Thing, Spot], Render] = {}
        self.cut_things = self._usable(cut_things)

    def _usable(self, cut_things: Sequence[CutThing]) -> tuple[CutThing, ...]:
        """Return the first few things that can be cut out; keep their pixels."""
        self._cutouts: dict[Outline, Cutout] = {}
        usable: list[CutThing] = []
        for item in cut_things:
            assert item.outline is not None
            cutout = cut_out(item.outline)
            if cutout is not None:
                self._cutouts[item.outline] = cutout
                usable.append(item)
            if len(usable) == MOST_CUT:
                break
        return tuple(usable)

    def expose(self, planting: Planting) -> _Exposed | None:
        """Return the photograph with all things; ``None`` if one is cut off, hidden or tiny."""
        pixels = self.photograph
        things: dict[str, Planted] = {}
        everywhere = np.zeros(pixels.shape[:2], bool)
        for item in planting.things:
            spot = planting.spots[item.id]
            # The noise of a thing at a spot is always the same: it tells nothing.
            rng = np.random.default_rng((*self._seeds, spot.x, spot.y))
            pixels, planted = plant(
                pixels, self._render(item, spot), spot, rng, original=self.photograph
            )
            if (everywhere & planted.touched).any() or not planted.is_whole:
                return None
            if not _is_large_enough(item, planted.mask):
                return None
            if measure_contrast(pixels, self.photograph, planted.mask) < MIN_CONTRAST:
                return None
            everywhere |= planted.touched
            things[item.id] = planted
        return _Exposed(planting, pixels, things)

    def _render(self, item: Thing, spot: Spot) -> Render:
        key = (item, spot)
        if key in self._renders:
            return self._renders[key]
        if isinstance(item, CutThing):
            assert item.outline is not None
            self._renders[key] = render_cutout(self._cutouts[item.outline], spot)
        else:
            camera = frame(item, spot, ELEVATION)
            seed = self._seeds[0]
            self._renders[key] = render_thing(
                item, camera, self._direction, samples=self._samples, seed=seed
            )
        return self._renders[key]


def measure_contrast(pixels: RGB, photograph: RGB, mask: Mask) -> float:
    """Return how much a thing's pixels differ from those that it covers, in levels of 255.

    It is the mean of each pixel's channel that differs most.
    """
    thing_pixels = pixels[mask].astype(np.int16)
    covered_pixels = photograph[mask].astype(np.int16)
    return float(np.abs(thing_pixels - covered_pixels).max(axis=1).mean())


def _is_large_enough(item: Thing, mask: Mask) -> bool:
    """Return whether a thing can be seen, and a sign can be read."""
    if mask.mean() < MIN_SHARE or mask.sum() < MIN_PIXELS:
        return False
    x0, _, x1, _ = box_of(mask)
    return item.text is None or x1 - x0 >= MIN_SIGN


def photograph_planted(
    photograph: RGB,
    config: PlantedConfig,
    *,
    world: str,
    seeds: tuple[int, ...],
    outlines: Outlines = NO_OUTLINES,
    name: str = "",
) -> list[PlantedPhotograph] | None:
    """Return photographs that differ by known changes, in an order that tells nothing.

    Half of the things are cut out of the photographs of ``outlines``, if there are any, whose
    own entry has the photograph's ``name``.

    ``None``: there is no room for enough things.
    """
    drawn_things = draw_cut_things(np.random.default_rng(seeds), outlines, name)
    planter = Planter(photograph, config, seeds, drawn_things)
    faces = find_faces(photograph)
    for attempt in range(WORLDS):
        rng = np.random.default_rng((*seeds, attempt))
        drawn = _draw_world(rng, planter, config, faces)
        if drawn is None:
            continue
        photographs = _develop_all(rng, photograph, drawn, world)
        if photographs is not None:
            return photographs
    return None


def _draw_world(
    rng: Rng, planter: Planter, config: PlantedConfig, faces: Sequence[Box]
) -> list[tuple[_Exposed, PhotoState]] | None:
    """Return a base and its variations, each with the photograph's own state."""
    base = _draw_base(rng, planter, faces)
    if base is None:
        return None
    state = draw_state(rng)
    drawn = [(base, state)]
    while len(drawn) < config.photographs:
        if rng.random() < config.no_change_share:
            drawn.append((base, draw_other_state(rng, state)))
            continue
        variation = _draw_variation(rng, planter, base, [exposed for exposed, _ in drawn])
        if variation is None:
            return None
        drawn.append((variation, draw_state(rng)))
    return drawn


def _develop_all(
    rng: Rng, photograph: RGB, drawn: Sequence[tuple[_Exposed, PhotoState]], world: str
) -> list[PlantedPhotograph] | None:
    """Return all photographs in random order; ``None`` if the framing of one cuts a thing."""
    photographs: list[PlantedPhotograph] = []
    for number, index in enumerate(rng.permutation(len(drawn))):
        exposed, state = drawn[int(index)]
        developed = _develop(photograph, exposed, state, world=world, number=number)
        if developed is None:
            return None
        photographs.append(developed)
    return photographs


def _draw_base(rng: Rng, planter: Planter, faces: Sequence[Box]) -> _Exposed | None:
    for _ in range(ATTEMPTS):
        spots = find_spots(planter.photograph, rng, avoided=faces)
        width = planter.photograph.shape[1]
        planting = draw_planting(rng, spots, width, planter.cut_things)
        if planting is None:
            continue
        exposed = planter.expose(planting)
        if exposed is not None:
            return exposed
    return None


def _draw_variation(
    rng: Rng, planter: Planter, base: _Exposed, others: list[_Exposed]
) -> _Exposed | None:
    """Return a variation whose changes are visible and unlike those of the others."""
    start = _without_used(base.planting, [other.planting for other in others])
    for _ in range(ATTEMPTS):
        planting = change_planting(rng, start)
        if planting is None:
            continue
        exposed = planter.expose(planting)
        if exposed is not None and _all_visible(base, exposed):
            return exposed
    return None


def _without_used(base: Planting, others: Sequence[Planting]) -> Planting:
    """Return the base without the choice of what other variations changed, and of their spots."""
    touched = set(base.touched)
    taken = set[Spot]()
    for other in others:
        touched |= other.touched
        taken.update(other.spots.values())
    free = tuple(spot for spot in base.free if spot not in taken)
    # New things of two variations are not the same thing.
    next_id = max(other.next_id for other in others)
    return replace(base, touched=frozenset(touched), free=free, next_id=next_id)


def _all_visible(base: _Exposed, exposed: _Exposed) -> bool:
    for change in exposed.planting.changes:
        if not _is_visible(str(change.object_id), base, exposed):
            return False
    return True


def _is_visible(name: str, base: _Exposed, exposed: _Exposed) -> bool:
    """Return whether a changed thing's pixels differ clearly."""
    region = np.zeros(base.pixels.shape[:2], bool)
    for state in (base, exposed):
        if name in state.things:
            region |= state.things[name].mask
    before = base.pixels[region].astype(np.int16)
    after = exposed.pixels[region].astype(np.int16)
    return float(np.abs(after - before).mean()) >= MIN_LEVELS


def _develop(
    photograph: RGB, exposed: _Exposed, state: PhotoState, *, world: str, number: int
) -> PlantedPhotograph | None:
    """Return the photograph in its state, with its graph; ``None`` if the framing cuts a thing."""
    pixels = state.apply(exposed.pixels)
    objects: list[SceneObject] = []
    covered: list[Covered] = []
    for item in exposed.planting.things:
        planted = exposed.things[item.id]
        mask = state.move(planted.mask)
        if _touches_border(mask):
            return None
        without = np.where(planted.touched[..., None], photograph, exposed.pixels)
        without = state.apply(without)
        touched = (without != pixels).any(axis=2)
        objects.append(_describe(item, mask, touched))
        x0, y0, x1, y1 = box_of(touched)
        patch = encode_png(np.ascontiguousarray(without[y0:y1, x0:x1]))
        covered.append(Covered(object_id=item.id, window=(x0, y0, x1, y1), png=patch))
    changes = exposed.planting.changes
    graph = SceneGraph(
        world=world,
        photograph=number,
        place=PLACE,
        light=state.light,
        viewpoint=state.view,
        objects=tuple(objects),
        changes=(*changes, *_changes_of(state)),
        planted=True,
        covered=tuple(covered),
    )
    return PlantedPhotograph(pixels, graph)


def _describe(item: Thing, mask: Mask, touched: Mask) -> SceneObject:
    x0, y0, x1, y1 = box_of(mask)
    centre = (x0 + x1) / 2 / mask.shape[1]
    column, is_clear = column_of(centre)
    facing = None
    is_rendered = not isinstance(item, CutThing)
    if is_rendered and SHAPES[item.shape].front:
        facing, _ = FRONT.facing(item)
    return SceneObject(
        id=item.id,
        shape=item.shape,
        colour=item.colour or None,
        material=item.material or None,
        size=item.size if is_rendered else None,
        pose=item.pose,
        text=item.text,
        facing=facing,
        column=column,
        depth=None,
        clear=is_clear,
        box=(x0, y0, x1, y1),
        visible=1.0,
        mask=encode_mask(mask),
        touched=encode_mask(touched),
    )


def _changes_of(state: PhotoState) -> Iterator[SceneChange]:
    """Yield how a state differs from the plain one."""
    plain = PhotoState()
    if state.light != plain.light:
        yield SceneChange(type="illumination", before=plain.light, after=state.light)
    if state.view != plain.view:
        kind = "focus" if state.kind == "soft" else "framing"
        yield SceneChange(type=kind, before=plain.view, after=state.view)


def _touches_border(mask: Mask) -> bool:
    return bool(mask[0].any() or mask[-1].any() or mask[:, 0].any() or mask[:, -1].any())
