"""The gradients of NAMC's losses of a whole batch, in parts that fit the memory: the same as if it fitted at once.

Reconstruction and description are means, so that a part only needs to know over how many places and words. Alignment
compares all rows with all: the embeddings of all parts are made without gradient, the loss is taken of them and its
slope by each, and every part is then encoded again and pulled along its slope (GradCache, Gao et al. 2021). What is
masked is drawn once. A batch of one part is encoded once.

Memory is that of a part, and on the host what the rows of two batches are, of which one is made ahead (at the size of
the paper 1.2 MB of pixels and 0.8 MB of features per row: 2 GB for batches of 512).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pairwright.schemas.namc import NamcConfig
from pairwright.tasks.models.namc.namc import Described, hidden_tokens
from pairwright.tasks.models.namc.noise import Draw, Masks
from pairwright.tasks.training.losses.namc import IGNORED, align, describe, reconstruct
from pairwright.tasks.training.namc.saved import Captioner

if TYPE_CHECKING:
    from torch import Tensor

Losses = dict[str, float]


@dataclass(frozen=True, slots=True)
class Part:
    """Be rows that go through the model at once: which, what of them is masked, and ``(b, T - 1)`` labels."""

    start: int
    stop: int
    masks: Masks | None
    labels: "Tensor"
    hidden: int
    """Tokens of masked words."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Say what a part cannot know: over how many labels and places means are, and the slopes of the alignment.

    ``slopes`` are by the images' and the texts' embeddings, ``(2, B, e)`` each; ``None``: the part is the whole.
    """

    tokens: int
    places: int
    slopes: "tuple[Tensor, Tensor] | None"


@dataclass(frozen=True)
class Accumulator:
    """Add up gradients; ``size`` rows go through the model at once, computed within ``autocast``."""

    captioner: Captioner
    config: NamcConfig
    size: int
    autocast: torch.autocast

    def backward(self, batch: Described, identity: "Tensor", seeds: Sequence[int]) -> tuple[Losses, Losses]:
        """Add the gradients of the losses' sum to the weights; return the losses, and the shares that were masked.

        Args:
            batch: the rows, on any device.
            identity: ``(B, 2)``, equal where halves are the same text.
            seeds: what masks are drawn by, of all first images, then of all second ones.
        """
        rows = len(batch.written)
        parts = [self._part(batch, seeds, start) for start in range(0, rows, self.size)]
        aligned, slopes = self._compare(batch, identity, parts) if len(parts) > 1 and parts[0].masks else (0.0, None)
        whole = Whole(
            tokens=sum(int((part.labels != IGNORED).sum()) for part in parts),
            places=sum(int(part.masks.patches.sum()) for part in parts if part.masks),
            slopes=slopes,
        )
        losses: Losses = {"alignment": aligned} if slopes else {}
        for part in parts:
            with self.autocast:
                found = self.losses(batch, identity, part, whole)
            torch.stack(list(found.values())).sum().backward()
            for name, value in found.items():
                losses[name] = losses.get(name, 0.0) + value.item()
        losses.pop("pull", None)
        return losses, _shares(batch, parts, whole)

    def _part(self, batch: Described, seeds: Sequence[int], start: int) -> Part:
        rows = len(batch.written)
        stop = min(start + self.size, rows)
        some, words = batch.some(start, stop).to(self.captioner.device), self.captioner.words
        labels = some.written[:, 1:]
        labels = labels.masked_fill(labels == words.pad, IGNORED)
        if self.captioner.model.noise is None:
            return Part(start, stop, None, labels, 0)
        own = [*seeds[start:stop], *seeds[rows + start : rows + stop]]
        draw = Draw(seeds=own, image_share=self.config.image_mask_ratio, text_share=self.config.text_mask_ratio)
        with self.autocast:
            masks = self.captioner.model.mask(some, draw)
        hidden = hidden_tokens(masks, some)
        labels = labels.masked_fill(hidden[:, 1:], words.mask if self.config.learn_masked else IGNORED)
        return Part(start, stop, masks, labels, int(hidden.sum()))

    def _compare(
        self, batch: Described, identity: "Tensor", parts: Sequence[Part]
    ) -> "tuple[float, tuple[Tensor, Tensor]]":
        """Return the alignment of all rows, and its slopes by their embeddings."""
        images: list[Tensor] = []
        texts: list[Tensor] = []
        for part in parts:
            assert part.masks is not None
            some = batch.some(part.start, part.stop).to(self.captioner.device)
            with torch.no_grad(), self.autocast:
                seen, read = self.captioner.model.encode(some, part.masks)
            images.append(_by_side(seen.whole))
            texts.append(_by_side(read.whole))
        both = [torch.cat(one, dim=1).requires_grad_() for one in (images, texts)]
        loss = _align(both[0], both[1], identity)
        first, second = torch.autograd.grad(loss, both)
        return loss.item(), (first, second)

    def losses(self, batch: Described, identity: "Tensor", part: Part, whole: Whole) -> "dict[str, Tensor]":
        """Return what is summed of a part; "pull" has the gradient of its share of the alignment, not its value."""
        model, some = self.captioner.model, batch.some(part.start, part.stop).to(self.captioner.device)
        if part.masks is None:
            return {"description": describe(model(some.features, some.written), part.labels, of=whole.tokens)}
        found = model.denoise(some, part.masks, mask_token=self.captioner.words.mask)
        images, texts = _by_side(found.images), _by_side(found.texts)
        if whole.slopes is None:
            losses = {"alignment": _align(images, texts, identity)}
        else:
            slopes = [slope[:, part.start : part.stop] for slope in whole.slopes]
            losses = {"pull": (images * slopes[0]).sum() + (texts * slopes[1]).sum()}
        losses["description"] = describe(found.next_tokens, part.labels, of=whole.tokens)
        if self.config.reconstruction_enabled:
            codes = some.codes.transpose(0, 1).flatten(0, 1)
            losses["reconstruction"] = reconstruct(found.codes, codes, found.masked, of=whole.places)
        return losses


def _shares(batch: Described, parts: Sequence[Part], whole: Whole) -> Losses:
    """Return how much of all places and of all tokens of words was masked."""
    places = sum(part.masks.patches.numel() for part in parts if part.masks)
    words = int((batch.numbers >= 0).sum())
    hidden = sum(part.hidden for part in parts)
    return {"masked/places": whole.places / places, "masked/words": hidden / max(words, 1)} if places else {}


def _by_side(embeddings: "Tensor") -> "Tensor":
    """Return ``(2, B, e)`` of ``(2 B, e)``, first ones before second ones."""
    return embeddings.unflatten(0, (2, -1))


def _align(images: "Tensor", texts: "Tensor", identity: "Tensor") -> "Tensor":
    """Return the sum over both sides; ``(2, B, e)`` each, and ``(B, 2)`` identities."""
    same = identity.to(images.device).unbind(1)
    return torch.stack([align(*side) for side in zip(images, texts, same, strict=True)]).sum()
