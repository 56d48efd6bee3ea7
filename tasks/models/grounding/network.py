"""Run Grounding DINO on its device: resized images and prompts in, boxes and the scores of each token out.

Needs PyTorch and transformers. On a GPU the network computes in bfloat16 (autocast), but its boxes and their scores,
the last step, in float32: eight bits of mantissa are pixels.

Images are batched with others of exactly their size. The library pads others with a mask, but the padding is seen: its
backbone and its group normalisations take no mask, so that an image's boxes depend on what it is batched with. Here
they do not, and are those of the image alone. Only an image that is too thin for the network is padded, to a size that
follows from its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.grounding.fit_images import Fit, Fitted
from pairwright.tasks.models.grounding.pack_tags import Prompt, TagPacker
from pairwright.tasks.models.preprocess import Size

if TYPE_CHECKING:
    from torch import Tensor, device

MOST, MOST_ON_CPU = 64, 1
"""Images at once at the most, of what is found by trying (ours). One takes a gigabyte or two at the published size: a
GPU says when its memory ends, and the batch is halved. Where the machine's memory ends, the process dies, and four at
once are no faster on a core than one (31 s each of the tiny model, 6.4 GB in place of 3.0)."""
CELLS = (8, 16, 32, 64)
"""Pixels of a side of the cells that the network proposes boxes from."""
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Ask:
    """Be an image and a prompt about it."""

    image: Fitted
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Answer:
    """Be what the network says to a prompt, of each of its queries."""

    boxes: Floats
    """``(queries, 4)``: centre, width and height as shares of the image."""
    scores: Floats
    """``(queries, tokens of the prompt)``, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingNetwork:
    """Be a network on its device, with the transform of its images and the writer of its prompts."""

    model: Any
    """transformers' ``GroundingDinoForObjectDetection``."""
    fit: Fit
    pack: TagPacker
    device: "device"

    def answer(self, asks: Sequence[Ask], batches: Batches) -> list[Answer]:
        """Return the answers, in order.

        Raises:
            ModelError: the answers are no numbers, or one image does not fit in the memory.
        """
        queries = int(self.model.config.num_queries)
        sizes = [canvas(one.image.pixels.shape[0], one.image.pixels.shape[1], queries) for one in asks]
        # Of one size, prompts of like length go together: they are filled up to the longest.
        order = sorted(range(len(asks)), key=lambda place: (sizes[place], len(asks[place].prompt.ids)))
        answers: dict[int, Answer] = {}
        for size, group in groupby(order, key=lambda place: sizes[place]):
            places = list(group)
            found = batches.each(lambda some, size=size: self._answer(some, size), [asks[place] for place in places])
            answers.update(zip(places, found, strict=True))
        return [answers[place] for place in range(len(asks))]

    def _answer(self, asks: Sequence[Ask], size: Size) -> list[Answer]:
        import torch

        on_gpu = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            images, seen = self._images([one.image.pixels for one in asks], size)
            ids, read = self._texts([one.prompt.ids for one in asks])
            found = self.model(
                pixel_values=images,
                pixel_mask=seen,
                input_ids=ids,
                token_type_ids=torch.zeros_like(ids),
                attention_mask=read,
            )
            # What fills a prompt up has no score: its logits are minus infinity.
            scores = found.logits.float().sigmoid()[:, :, : ids.shape[1]].cpu().numpy()
            boxes = found.pred_boxes.float().cpu().numpy()
        if not (np.isfinite(scores).all() and np.isfinite(boxes).all()):
            raise ModelError("detection.model: Grounding DINO gave boxes or scores that are not finite")
        return [
            Answer(box, score[:, : len(one.prompt.ids)]) for one, box, score in zip(asks, boxes, scores, strict=True)
        ]

    def _images(self, images: Sequence[NDArray[np.uint8]], size: Size) -> "tuple[Tensor, Tensor]":
        """Return ``(n, 3, *size)`` numbers, zero where they are padded, and ``(n, *size)``: 1 where they are not."""
        import torch

        shown = np.zeros((len(images), *size, 3), dtype=np.uint8)
        seen = torch.zeros((len(images), *size), dtype=torch.long)
        for place, image in enumerate(images):
            height, width = image.shape[:2]
            shown[place, :height, :width] = image
            seen[place, :height, :width] = 1
        seen = seen.to(self.device)
        return self.fit.steps.numbers(torch.from_numpy(shown).to(self.device)) * seen[:, None], seen

    def _texts(self, prompts: Sequence[tuple[int, ...]]) -> "tuple[Tensor, Tensor]":
        """Return ``(n, longest)`` ids, filled up with 0, and where they are tokens."""
        import torch

        longest = max(map(len, prompts))
        filled = [[*ids, *[0] * (longest - len(ids))] for ids in prompts]
        read = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in prompts]
        return torch.tensor(filled, device=self.device), torch.tensor(read, device=self.device)


def canvas(height: int, width: int, queries: int) -> Size:
    """Return the height and width that an image is padded to: its own, unless it has too few cells.

    The network takes its queries from its cells, and fails where it has fewer cells than queries: of a panorama of
    16 x 8,000 pixels, for one, of which 3 x 1,333 are left after it is resized (40 x 1,333 with what is padded).
    """
    short, long = sorted((height, width))
    while sum(-(-short // cell) * -(-long // cell) for cell in CELLS) < queries:
        short = (short // CELLS[0] + 1) * CELLS[0]
    return (short, long) if height <= width else (long, short)


def compute_exactly(modules: Sequence[Any], kind: str) -> None:
    """Let modules compute in float32 where the rest of a network does not."""
    for module in modules:
        module.forward = _exact(module.forward, kind)


def _exact(forward: "Callable[..., Tensor]", kind: str) -> "Callable[..., Tensor]":
    import torch

    def exact(*given: "Tensor", **named: "Tensor") -> "Tensor":
        with torch.autocast(kind, enabled=False):
            return forward(*map(_wide, given), **{name: _wide(value) for name, value in named.items()})

    return exact


def _wide(value: "Tensor") -> "Tensor":
    return value.float() if value.is_floating_point() else value
