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
from pairwright.schemas.phrases import noun, spell_number
from pairwright.schemas.rows import Box, Tag
from pairwright.schemas.scene import Mask, SceneGraph, SceneObject
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.models.prepare_ahead import DecodedImage

GROUPINGS = (("colour", "shape"), ("shape",))
"""Attributes: objects that agree in all of them form a group."""
VERSION = "scene graphs 1"


class TagMask(NamedTuple):
    """Union of the masks of one tag's boxes."""

    mask: NDArray[np.bool_]
    """``(h, w)``, of the image's own size."""
    score: float
    """The segmenter's own quality estimate, the lowest of its boxes; 1 without estimates."""


@dataclass(frozen=True, slots=True)
class SceneTagger:
    """Tagger of the visible objects of a rendered scene.

    It also tags each group of similar objects ("three yellow balls").
    """

    name: str = "scene-graph"
    version: str = VERSION

    def prepare(self, image: DecodedImage) -> SceneGraph | None:
        """Return the graph."""
        return image.graph

    def tag(self, prepared: Sequence[SceneGraph | None]) -> list[tuple[Tag, ...]]:
        """Return single objects first; an image without a graph has no tags."""
        tags: list[tuple[Tag, ...]] = []
        for graph in prepared:
            tags.append(tuple(tags_of(graph)) if graph else ())
        return tags


def tags_of(graph: SceneGraph) -> list[Tag]:
    """Return a scene's objects and groups of similar ones, each with the objects resting on it."""
    riders: dict[str | None, list[SceneObject]] = defaultdict(list)
    for item in graph.objects:
        riders[item.support].append(item)
    tags = [_tag(_describe(item), [item], riders) for item in graph.objects]
    for attributes in GROUPINGS:
        groups = _group_objects(graph.objects, attributes)
        for selector, items in groups.items():
            count = len(items)
            if count > 1:
                name = f"{spell_number(count)} {noun(selector, count)}"
                tags.append(_tag(name, items, riders))
    return tags


def _group_objects(
    objects: Sequence[SceneObject],
    attributes: Sequence[str],
) -> dict[Selector, list[SceneObject]]:
    """Return the objects that agree in all of the attributes."""
    groups: dict[Selector, list[SceneObject]] = defaultdict(list)
    for item in objects:
        values = {name: getattr(item, name) for name in attributes}
        selector = Selector(**values)
        groups[selector].append(item)
    return groups


def _describe(item: SceneObject) -> str:
    selector = Selector(
        colour=item.colour,
        material=item.material,
        shape=item.shape,
    )
    return noun(selector)


def _tag(
    name: str,
    items: Sequence[SceneObject],
    riders: Mapping[str | None, Sequence[SceneObject]],
) -> Tag:
    """Return the tag of objects and of those that rest on them."""
    ids: list[str] = []
    for item in items:
        ids.append(item.id)
        ids += [rider.id for rider in riders.get(item.id, ())]
    distinct = dict.fromkeys(ids)
    return Tag(
        name=name,
        score=1.0,
        tagger="scene-graph",
        objects=tuple(distinct),
    )


@dataclass(frozen=True, slots=True)
class SceneDetector:
    """Detector that returns the boxes of a tag's rendered objects."""

    name: str = "scene-graph"
    version: str = VERSION

    def prepare(self, image: DecodedImage) -> dict[str, dict[str, float]]:
        """Return the corners of each object."""
        corners: dict[str, dict[str, float]] = {}
        for item in _objects(image):
            x0, y0, x1, y1 = map(float, item.box)
            corners[item.id] = {
                "x0": x0,
                "y0": y0,
                "x1": x1,
                "y1": y1,
            }
        return corners

    def detect(
        self,
        prepared: Sequence[Any],
        tags: Sequence[Sequence[Tag]],
    ) -> list[tuple[Box, ...]]:
        """Return one box per object of a tag."""
        boxes_of_images: list[tuple[Box, ...]] = []
        for corners, image_tags in zip(prepared, tags, strict=True):
            boxes: list[Box] = []
            for tag_index, tag in enumerate(image_tags):
                for name in tag.objects:
                    if name in corners:
                        box = Box(tag=tag_index, score=1.0, **corners[name])
                        boxes.append(box)
            boxes_of_images.append(tuple(boxes))
        return boxes_of_images


@dataclass(frozen=True, slots=True)
class SceneSegmenter:
    """Segmenter that returns the renderer's masks of a tag's objects."""

    name: str = "scene-graph"
    version: str = VERSION

    def prepare(self, image: DecodedImage) -> tuple[tuple[int, int], dict[str, Mask]]:
        """Return the image's height and width, and the mask of each object.

        Masks of another size are ignored.
        """
        size = image.pixels.shape[:2]
        masks: dict[str, Mask] = {}
        for item in _objects(image):
            if (item.mask.height, item.mask.width) == size:
                masks[item.id] = item.mask
        return size, masks

    def segment(
        self,
        prepared: Sequence[Any],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag: the union of its objects' masks.

        It is all False without a box.
        """
        for (size, masks), image_tags, image_boxes in zip(prepared, tags, boxes, strict=True):
            boxed = {box.tag for box in image_boxes}
            tag_masks: list[TagMask] = []
            for tag_index, tag in enumerate(image_tags):
                objects = tag.objects if tag_index in boxed else ()
                mask = _mask_objects(objects, masks, size)
                tag_masks.append(TagMask(mask, 1.0))
            yield tag_masks


def _mask_objects(
    objects: Sequence[str],
    masks: Mapping[str, Mask],
    size: tuple[int, int],
) -> NDArray[np.bool_]:
    """Return the union of the visible objects' masks."""
    empty = np.zeros(size, bool)
    visible = [masks[name] for name in objects if name in masks]
    return _unite(empty, visible)


def _unite(
    empty: NDArray[np.bool_],
    masks: Sequence[Mask],
) -> NDArray[np.bool_]:
    """Return the union of masks."""
    decoded = [decode_mask(mask) for mask in masks]
    return np.logical_or.reduce([empty, *decoded])


def _objects(image: DecodedImage) -> Sequence[SceneObject]:
    """Return the objects of a rendered image; none of a photograph."""
    return image.graph.objects if image.graph else ()
