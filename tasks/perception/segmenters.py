"""Segmenters by name: SAM on photographs, the renderer's masks, plugins'.

They make masks of the boxes of an image's tags.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.box_sam import BoxSam, pin_box_sam
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.sam import Sam, pin_sam
from pairwright.tasks.models.scene_models import SceneSegmenter, TagMask


@runtime_checkable
class Segmenter(Protocol):
    """Model that makes masks of boxes."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its masks."""
        ...

    def prepare(self, image: DecodedImage) -> Any:
        """Return the model's input of one image; may run in another thread."""
        ...

    def segment(
        self,
        prepared: Sequence[Any],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterable[list[TagMask]]:
        """Return for each image one mask per tag: the union of its boxes' masks."""
        ...


def _make_graph(_: SegmentationConfig) -> Segmenter:
    return SceneSegmenter()


def _make_sam(config: SegmentationConfig) -> Segmenter:
    return Sam(config=config)


def _make_box_sam(config: SegmentationConfig) -> Segmenter:
    return BoxSam(config=config)


SEGMENTERS: ModelRegistry[SegmentationConfig, Segmenter] = ModelRegistry(
    "segmenters",
    Segmenter,
    {
        "scene-graph": OwnModel(_make_graph),
        "sam": OwnModel(_make_sam, pin_sam),
        "sam1": OwnModel(_make_box_sam, pin_box_sam),
        "sam2": OwnModel(_make_box_sam, pin_box_sam),
        "sam3": OwnModel(_make_box_sam, pin_box_sam),
    },
)
"""All segmenters, by name."""
