"""Make masks of boxes with SAM (Kirillov et al., 2023), by the package ``segment-anything``.

Reads the published checkpoints (``sam_vit_b/l/h``, as ``pairwright fetch`` puts them), or a local one. Needs PyTorch
and that package. Each image is encoded once, in batches; all its boxes then are one prompt, without several masks to
choose from (``multimask_output=False``). On a GPU the encoder computes in bfloat16 (autocast); boxes and masks are
float32 everywhere: in bfloat16 the corner of a box would move by up to four pixels.

Memory, at the published size: 16 images at once on a GPU (found by trying), one on a CPU; 32 boxes at once, 50 MB each;
of one image a byte per pixel and tag, and four bytes per pixel while a mask is enlarged.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.sam.attention import fuse_attention
from pairwright.tasks.models.sam.enlarge_masks import Patch
from pairwright.tasks.models.sam.geometry import Fitted, Square
from pairwright.tasks.models.sam.weights import load_sam
from pairwright.tasks.models.segmentation import TagMask
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_local,
    find_published,
    identify_files,
    loading,
    require_packages,
)

if TYPE_CHECKING:
    from torch import Tensor, device

FIELD = "segmentation"
ADDRESS = "https://dl.fbaipublicfiles.com/segment_anything/"
FILES = {
    "vit_b": ("sam_vit_b_01ec64.pth", "ec2df62732614e57411cdcf32a23ffdf28910380d03139ee0f4fcbe91eb8c912"),
    "vit_l": ("sam_vit_l_0b3195.pth", "3adcc4315b642a4d2101128f611684e8734c41232a17c648ed1693702a49a622"),
    "vit_h": ("sam_vit_h_4b8939.pth", "a7bf3b02f3ebf1267aba913ff637d9a2d5c33d3173bb679e46d9f338c26f262e"),
}
"""The published files with their SHA-256."""
MOST_IMAGES, MOST_BOXES = 16, 32
"""What a device takes at once: more makes neither faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sam:
    """Segment with SAM; its weights are loaded once per process, when they are first needed."""

    config: SegmentationConfig

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return f"SAM {self.config.revision or self.config.checkpoint or self.config.model}"

    @property
    def prepare(self) -> Callable[[Seen], Fitted]:
        """Return what brings an image into the model's square."""
        return _load(self.config.model_dump_json()).square.fit

    def segment(
        self, prepared: Sequence[Fitted], tags: Sequence[Sequence[Tag]], boxes: Sequence[Sequence[Box]]
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag: the union of those of its boxes, scored by the least of them.

        Raises:
            ModelError: the weights are missing, or give numbers that are not finite.
        """
        yield from _load(self.config.model_dump_json()).segment(prepared, tags, boxes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompter:
    """Be SAM's two halves on their device."""

    encode: "Callable[[Tensor], Tensor]"
    """From ``(n, 3, side, side)`` to ``(n, dimension, s, s)``."""
    prompt: "Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]"
    """From one image's ``(1, dimension, s, s)`` and ``(n, 4)`` boxes to ``(n, 4s, 4s)`` logits and ``(n,)`` scores."""
    square: Square
    device: "device"
    images: Batches
    boxes: Batches

    def segment(
        self, prepared: Sequence[Fitted], tags: Sequence[Sequence[Tag]], boxes: Sequence[Sequence[Box]]
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag; an image without boxes is not encoded."""
        encoded = self._encoded([image for image, found in zip(prepared, boxes, strict=True) if found])
        for image, names, found in zip(prepared, tags, boxes, strict=True):
            union = Union(len(names), image.original, self.device)
            if found:
                self._add(union, next(encoded), found)
            yield union.masks()

    def _encoded(self, images: Sequence[Fitted]) -> "Iterator[Tensor]":
        for batch in self.images.pieces(self._encode, images):
            yield from batch.split(1)

    def _encode(self, images: Sequence[Fitted]) -> "Tensor":
        import torch

        on_gpu = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            made = self.encode(self.square.numbers(images, self.device)).float()
        if on_gpu:
            torch.cuda.synchronize(self.device)  # batches are timed
        return made

    def _add(self, union: "Union", embedding: "Tensor", boxes: Sequence[Box]) -> None:
        for scores in self.boxes.pieces(partial(self._add_some, union, embedding), boxes):
            if not np.isfinite(scores).all():
                raise ModelError(f"{FIELD}: SAM gave scores that are not finite: its weights are damaged")

    def _add_some(self, union: "Union", embedding: "Tensor", boxes: Sequence[Box]) -> NDArray[np.float32]:
        import torch

        corners = torch.from_numpy(self.square.boxes(boxes, union.size)).to(self.device)
        with torch.inference_mode():
            logits, scores = self.prompt(embedding, corners)
            numbers: NDArray[np.float32] = scores.float().cpu().numpy()
            for box, patch, score in zip(boxes, self.square.masks(logits, union.size), numbers, strict=True):
                union.add(box.tag, patch, float(score))
        return numbers


class Union:
    """Gather the masks of an image's boxes by tag, on the device where they are made."""

    def __init__(self, tags: int, size: tuple[int, int], where: "device") -> None:
        """Begin with empty masks of ``tags`` tags, of an image of ``size`` (height, width)."""
        import torch

        self.size = size
        self._masks = torch.zeros(tags, size[1], size[0], dtype=torch.bool, device=where)
        self._scores: list[float | None] = [None] * tags

    def add(self, tag: int, patch: Patch, score: float) -> None:
        """Add the mask of one box; to add it again changes nothing."""
        width, height = patch.mask.shape
        self._masks[tag, patch.left : patch.left + width, patch.top : patch.top + height] |= patch.mask
        known = self._scores[tag]
        self._scores[tag] = score if known is None else min(score, known)

    def masks(self) -> list[TagMask]:
        """Return one mask per tag, which lies in memory by columns; a tag without a box scores 0."""
        masks: NDArray[np.bool_] = self._masks.cpu().numpy()
        return [TagMask(mask.T, score or 0.0) for mask, score in zip(masks, self._scores, strict=True)]


def pin_sam(config: SegmentationConfig) -> SegmentationConfig:
    """Return the configuration with the hash of the weights that are on this machine.

    Raises:
        ModelError: weights or packages are missing, or the weights are not those that the configuration names.
    """
    require_packages(FIELD, "torch", "torchvision", "segment_anything")
    path = _find(config)
    checkpoint = absolute(config.checkpoint) if config.checkpoint else ""
    return config.model_copy(update={"revision": identify_files([path]), "checkpoint": checkpoint})


def published(config: SegmentationConfig) -> PublishedFile:
    """Return which published file a configuration without a local one means."""
    name, sha256 = FILES[config.model]
    return PublishedFile(field=FIELD, name=name, url=ADDRESS + name, sha256=sha256)


def _find(config: SegmentationConfig) -> Path:
    if not config.checkpoint:
        path = find_published(published(config), download=config.download)
    else:
        (path,) = find_local(f"{FIELD}.checkpoint", Path(config.checkpoint).expanduser())
    check_revision(FIELD, config.revision, identify_files([path]), path)
    return path


def check_sam(config: SegmentationConfig) -> None:
    """Refuse a local file that is no SAM checkpoint, before a build has worked for hours to come to it.

    Raises:
        ModelError: names the file, and what is wrong with it.
    """
    if config.checkpoint:
        _read(config)


def _read(config: SegmentationConfig) -> Any:
    """Return the package's model, whose weights stay in the file."""
    path = _find(config.model_copy(update={"download": False}))
    with loading(FIELD, path):
        return load_sam(path, field=f"{FIELD}.checkpoint" if config.checkpoint else FIELD)


@lru_cache(maxsize=1)
def _load(configuration: str) -> Prompter:
    config = SegmentationConfig.model_validate_json(configuration)
    device = choose_device()
    model = _read(config).to(device)
    fuse_attention(model.image_encoder)
    return Prompter(
        encode=model.image_encoder,
        prompt=partial(_prompt, model),
        square=Square(model.image_encoder.img_size),
        device=device,
        images=Batches(config.batch_size, most=MOST_IMAGES)
        if device.type == "cuda"
        else Batches(config.batch_size or 1),
        boxes=Batches(MOST_BOXES),
    )


def _prompt(model: Any, embedding: "Tensor", boxes: "Tensor") -> "tuple[Tensor, Tensor]":
    sparse, dense = model.prompt_encoder(points=None, boxes=boxes, masks=None)
    logits, scores = model.mask_decoder(
        image_embeddings=embedding,
        image_pe=model.prompt_encoder.get_dense_pe(),
        sparse_prompt_embeddings=sparse,
        dense_prompt_embeddings=dense,
        multimask_output=False,
    )
    return logits[:, 0], scores[:, 0]
