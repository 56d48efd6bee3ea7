"""Segmenters of boxes: the renderer's masks for rendered scenes, SAM for photographs.

A segmenter works in two steps, like a tagger: ``prepare`` may run in other processes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import Box, Tag
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.store.masks import decode_mask


class TagMask(NamedTuple):
    """Union of the masks of one tag's boxes."""

    mask: NDArray[np.bool_]  # ``(h, w)``, of the image's own size
    score: float  # the segmenter's own quality estimate, the lowest of its boxes; 1 without estimates


class Segmenter(Protocol):
    """Segmenter of boxes."""

    @property
    def version(self) -> str:
        """Identity, which changes with its masks."""
        ...

    @property
    def prepare(self) -> Callable[[Seen], Any]:
        """Function from one image to the input of ``segment``; picklable."""
        ...

    def segment(
        self, prepared: Sequence[Any], tags: Sequence[Sequence[Tag]], boxes: Sequence[Sequence[Box]]
    ) -> Iterator[list[TagMask]]:
        """Yield for each prepared image one mask per tag, all False for a tag without a box."""
        ...


@dataclass(frozen=True, slots=True)
class SceneSegmenter:
    """Segmenter that returns the renderer's masks of a tag's objects."""

    version: str = "scene graphs 1"

    def prepare(self, seen: Seen) -> tuple[SceneGraph | None, tuple[int, int]]:
        """Return the graph, and the image's height and width."""
        return seen.graph, seen.pixels.shape[:2]

    def segment(
        self,
        prepared: Sequence[tuple[SceneGraph | None, tuple[int, int]]],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterator[list[TagMask]]:
        """Yield the union of the masks of each tag's objects; masks of another size are ignored."""
        for (graph, size), names, found in zip(prepared, tags, boxes, strict=True):
            places = {box.tag for box in found}
            things = graph.objects if graph else ()
            masks = {t.id: decode_mask(t.mask) for t in things if (t.mask.height, t.mask.width) == size}
            empty = np.zeros(size, dtype=bool)
            yield [
                TagMask(np.logical_or.reduce([empty, *(masks[i] for i in tag.objects if i in masks)]), 1.0)
                if place in places
                else TagMask(empty, 1.0)
                for place, tag in enumerate(names)
            ]
