"""Tagger, detector and segmenter of rendered scenes, which read the scene's graph.

Like the models of photographs that they stand in for (RAM, Grounding DINO, SAM), they work in two
steps: ``prepare`` turns one image into the model's input, possibly in another thread, and the model
then takes many at once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.claims import Selector
from pairwright.schemas.phrases import noun, number
from pairwright.schemas.rows import Box, Tag
from pairwright.schemas.scene import Mask, SceneGraph, SceneObject
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.models.prepare_ahead import DecodedImage

GROUPINGS = (("colour", "shape"), ("shape",))  # objects that agree in all of these form a group
VERSION = "scene graphs 1"


class TagMask(NamedTuple):
    """Union of the masks of one tag's boxes."""

    mask: NDArray[np.bool_]  # ``(h, w)``, of the image's own size
    score: (
        float  # the segmenter's own quality estimate, the lowest of its boxes; 1 without estimates
    )


@dataclass(frozen=True, slots=True)
class SceneTagger:
    """Tagger of each visible object of a rendered scene, and each group of similar objects ("three yellow balls")."""

    version: str = VERSION

    def prepare(self, seen: DecodedImage) -> SceneGraph | None:
        """Return the graph."""
        return seen.graph

    def tag(self, prepared: Sequence[SceneGraph | None]) -> list[tuple[Tag, ...]]:
        """Return single objects first; an image without a graph has no tags."""
        return [tuple(tags_of(graph)) if graph else () for graph in prepared]


def tags_of(graph: SceneGraph) -> list[Tag]:
    """Return a scene's objects and groups of similar objects, each with the objects resting on it."""
    riders: dict[str | None, list[SceneObject]] = defaultdict(list)
    for thing in graph.objects:
        riders[thing.support].append(thing)
    found = [
        _tag(
            noun(Selector(colour=thing.colour, material=thing.material, shape=thing.shape)),
            [thing],
            riders,
        )
        for thing in graph.objects
    ]
    for names in GROUPINGS:
        members: dict[Selector, list[SceneObject]] = defaultdict(list)
        for thing in graph.objects:
            members[Selector(**{name: getattr(thing, name) for name in names})].append(thing)
        found += [
            _tag(f"{number(len(things))} {noun(selector, len(things))}", things, riders)
            for selector, things in members.items()
            if len(things) > 1
        ]
    return found


def _tag(
    name: str, things: Sequence[SceneObject], riders: Mapping[str | None, Sequence[SceneObject]]
) -> Tag:
    ids = [one.id for thing in things for one in (thing, *riders.get(thing.id, ()))]
    return Tag(name=name, score=1.0, tagger="scene-graph", objects=tuple(dict.fromkeys(ids)))


@dataclass(frozen=True, slots=True)
class SceneDetector:
    """Detector that returns the boxes of a tag's rendered objects."""

    version: str = VERSION

    def prepare(self, seen: DecodedImage) -> dict[str, dict[str, float]]:
        """Return the corners of each object."""
        things = seen.graph.objects if seen.graph else ()
        return {
            thing.id: dict(zip(("x0", "y0", "x1", "y1"), map(float, thing.box), strict=True))
            for thing in things
        }

    def detect(
        self, prepared: Sequence[Any], tags: Sequence[Sequence[Tag]]
    ) -> list[tuple[Box, ...]]:
        """Return one box per object of a tag."""
        found: list[tuple[Box, ...]] = []
        for corners, names in zip(prepared, tags, strict=True):
            boxed = (
                (n, corners[name])
                for n, tag in enumerate(names)
                for name in tag.objects
                if name in corners
            )
            found.append(tuple(Box(tag=place, score=1.0, **own) for place, own in boxed))
        return found


@dataclass(frozen=True, slots=True)
class SceneSegmenter:
    """Segmenter that returns the renderer's masks of a tag's objects."""

    version: str = VERSION

    def prepare(self, seen: DecodedImage) -> tuple[tuple[int, int], dict[str, Mask]]:
        """Return the image's height and width, and the mask of each object; masks of another size are ignored."""
        size, things = seen.pixels.shape[:2], seen.graph.objects if seen.graph else ()
        return size, {
            thing.id: thing.mask
            for thing in things
            if (thing.mask.height, thing.mask.width) == size
        }

    def segment(
        self, prepared: Sequence[Any], tags: Sequence[Sequence[Tag]], boxes: Sequence[Sequence[Box]]
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag: the union of its objects' masks, all False without a box."""
        for (size, masks), names, found in zip(prepared, tags, boxes, strict=True):
            boxed, made = {box.tag for box in found}, list[TagMask]()
            for place, tag in enumerate(names):
                things = [
                    decode_mask(masks[name])
                    for name in tag.objects
                    if place in boxed and name in masks
                ]
                made.append(TagMask(np.logical_or.reduce([np.zeros(size, bool), *things]), 1.0))
            yield made
