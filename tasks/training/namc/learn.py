"""One step of NAMC's training (paper 001, Eq. 2: the sum of three losses), and what is measured on held-out rows.

Adam with two learning rates, each falling along a cosine to a floor of its own: a third of it for reconstruction and
description, a tenth for the noise module, which begins at a third of theirs (published: 3e-4 to 1e-4, 1e-4 to 1e-5).

A batch goes through the model in parts that fit the memory, with the gradients of the whole. Reconstruction and
description are means, so that a part only needs to know over how many places and words. Alignment compares all rows
with all: the embeddings of all parts are made without gradient, the loss is taken of them and its slope by each, and
every part is then encoded again and pulled along its slope (GradCache, Gao et al. 2021). What is masked is drawn once;
a batch of one part is encoded once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc import (
    IGNORED,
    Described,
    Draw,
    Masks,
    alignment_loss,
    description_loss,
    hidden_tokens,
    reconstruction_loss,
)
from pairwright.tasks.training.load_model import choose_precision
from pairwright.tasks.training.namc.batches import Batches
from pairwright.tasks.training.namc.captioner import Captioner
from pairwright.tasks.training.tune_model import computing

RATE = 1e-3
"""Of the small model, where none is set; the paper's is 3e-4."""
FLOOR, NOISE_SHARE, NOISE_FLOOR = 1 / 3, 1 / 3, 1 / 10
AT_ONCE = 64
"""Held-out rows that are measured, or described, at once."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that go through the model at once: what of them is masked, and ``(b, T - 1)`` labels."""

    start: int
    stop: int
    masks: Masks | None
    labels: Tensor
    hidden: int
    """Tokens of masked words."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What a part cannot know: over how many labels and places means are, and the slopes of the alignment.

    ``slopes`` are by the images' and the texts' embeddings, ``(2, B, e)`` each; ``None``: the part is the whole.
    """

    tokens: int
    places: int
    slopes: tuple[Tensor, Tensor] | None


@dataclass
class Learner:
    """A model in training."""

    captioner: Captioner
    config: TrainConfig
    steps: int

    def __post_init__(self) -> None:
        model, rate = self.captioner.model, self.config.optimiser.learning_rate or RATE
        own = [*model.encoder.parameters(), *model.describer.parameters()]
        groups: list[dict[str, Any]] = [{"params": own, "top": rate, "floor": FLOOR}]
        if model.noise is not None:
            noise = list(model.noise.parameters())
            groups.append({"params": noise, "top": rate * NOISE_SHARE, "floor": NOISE_FLOOR})
        # Fused: a seventh of the time on a CPU, where most weights are rows of CLIP's vocabulary.
        self.optimiser = torch.optim.Adam(groups, lr=rate, fused=True)

    @property
    def _autocast(self) -> torch.autocast:
        return computing(self.captioner.device, choose_precision(self.config))

    def step(self, batch: Described, identity: Tensor, *, seeds: Sequence[int], number: int) -> dict[str, float]:
        """Learn from a batch, ``optimiser.per_device_train_batch_size`` rows at a time, and return what was measured.

        Args:
            batch: all rows that the step is of.
            identity: ``(B, 2)``, equal where halves are the same text.
            seeds: what masks are drawn by.
            number: of the step, from 0.

        Raises:
            TrainingError: the loss, or the norm of its gradients, is not finite.
        """
        self.captioner.model.train()
        self.optimiser.zero_grad()
        losses, masked = self.backward(batch, identity, seeds)
        loss, groups = sum(losses.values()), self.optimiser.param_groups
        _check("the loss", loss, number)
        for group in groups:
            group["lr"] = group["top"] * falling(number / max(self.steps, 1), group["floor"])
        # Each group by itself: cosines / 0.02 have slopes hundreds of times those of the other losses.
        norms = [clip_grad_norm_(group["params"], self.config.optimiser.max_grad_norm).item() for group in groups]
        _check("the norm of the gradients", sum(norms), number)  # before the weights are no numbers, too
        self.optimiser.step()
        found = {f"loss/{name}": value for name, value in losses.items()} if len(losses) > 1 else {}
        noise = {"grad_norm/noise": norms[1]} if len(norms) > 1 else {}
        return {"loss": loss, **found, **masked, "grad_norm": norms[0], **noise, "learning_rate": groups[0]["lr"]}

    def backward(
        self, batch: Described, identity: Tensor, seeds: Sequence[int]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Add the gradients of a batch; return its losses, and how much of all places and words was masked.

        The seeds are of all first images, then of all second ones.
        """
        rows, size = len(batch.written), self.config.optimiser.per_device_train_batch_size
        parts = [self._part(batch, seeds, start, min(start + size, rows)) for start in range(0, rows, size)]
        aligned, slopes = self._compare(batch, identity, parts) if len(parts) > 1 and parts[0].masks else (0.0, None)
        whole = Whole(
            tokens=sum(int((part.labels != IGNORED).sum()) for part in parts),
            places=sum(int(part.masks.patches.sum()) for part in parts if part.masks),
            slopes=slopes,
        )
        losses = {"alignment": aligned} if slopes else {}
        for part in parts:
            with self._autocast:
                found = self.losses(batch, identity, part, whole)
            torch.stack(list(found.values())).sum().backward()
            for name, value in found.items():
                losses[name] = losses.get(name, 0.0) + value.item()
        losses.pop("pull", None)
        if not parts[0].masks:
            return losses, {}
        places = sum(part.masks.patches.numel() for part in parts if part.masks)
        words = max(int((batch.numbers >= 0).sum()), 1)
        hidden = sum(part.hidden for part in parts)
        return losses, {"masked/places": whole.places / places, "masked/words": hidden / words}

    def _part(self, batch: Described, seeds: Sequence[int], start: int, stop: int) -> Part:
        rows, words = len(batch.written), self.captioner.words
        some = batch.some(start, stop).to(self.captioner.device)
        labels = some.written[:, 1:]
        labels = labels.masked_fill(labels == words.pad, IGNORED)
        if self.captioner.model.noise is None:
            return Part(start, stop, None, labels, 0)
        own, config = [*seeds[start:stop], *seeds[rows + start : rows + stop]], self.config.namc
        draw = Draw(seeds=own, image_share=config.image_mask_ratio, text_share=config.text_mask_ratio)
        with self._autocast:
            masks = self.captioner.model.mask(some, draw)
        hidden = hidden_tokens(masks, some)
        labels = labels.masked_fill(hidden[:, 1:], words.mask if config.learn_masked else IGNORED)
        return Part(start, stop, masks, labels, int(hidden.sum()))

    def _compare(
        self, batch: Described, identity: Tensor, parts: Sequence[Part]
    ) -> tuple[float, tuple[Tensor, Tensor]]:
        """Return the alignment of all rows, and its slopes by their embeddings."""
        images: list[Tensor] = []
        texts: list[Tensor] = []
        for part in parts:
            assert part.masks is not None
            with torch.no_grad(), self._autocast:
                some = batch.some(part.start, part.stop).to(self.captioner.device)
                seen, read = self.captioner.model.encode(some, part.masks)
            images.append(_by_side(seen.whole))
            texts.append(_by_side(read.whole))
        both = [torch.cat(one, dim=1).requires_grad_() for one in (images, texts)]
        loss = _align(both[0], both[1], identity)
        first, second = torch.autograd.grad(loss, both)
        return loss.item(), (first, second)

    def losses(self, batch: Described, identity: Tensor, part: Part, whole: Whole) -> dict[str, Tensor]:
        """Return what is summed of a part; "pull" has the gradient of its share of the alignment, not its value."""
        model, some = self.captioner.model, batch.some(part.start, part.stop).to(self.captioner.device)
        if part.masks is None:
            loss = description_loss(model(some.features, some.written), part.labels, of=whole.tokens)
            return {"description": loss}
        found = model.denoise(some, part.masks, mask_token=self.captioner.words.mask)
        images, texts = _by_side(found.images), _by_side(found.texts)
        if whole.slopes is None:
            losses = {"alignment": _align(images, texts, identity)}
        else:
            slopes = [slope[:, part.start : part.stop] for slope in whole.slopes]
            losses = {"pull": (images * slopes[0]).sum() + (texts * slopes[1]).sum()}
        losses["description"] = description_loss(found.next_tokens, part.labels, of=whole.tokens)
        if self.config.namc.reconstruction_enabled:
            codes = some.codes.transpose(0, 1).flatten(0, 1)
            losses["reconstruction"] = reconstruction_loss(found.codes, codes, found.masked, of=whole.places)
        return losses

    @torch.no_grad()
    def measure(self, batches: Batches) -> dict[str, float]:
        """Return the mean loss per token of describing held-out rows, nothing masked; not the sum of all losses."""
        model, pad = self.captioner.model.eval(), self.captioner.words.pad
        total, count = 0.0, 0
        for start in range(0, len(batches), AT_ONCE):
            batch, _ = batches.make(range(start, min(start + AT_ONCE, len(batches))))
            batch = batch.to(self.captioner.device)
            labels = batch.written[:, 1:].masked_fill(batch.written[:, 1:] == pad, IGNORED)
            tokens = int((labels != IGNORED).sum())
            with self._autocast:
                total += description_loss(model(batch.features, batch.written), labels).item() * tokens
            count += tokens
        name = "loss" if self.captioner.model.noise is None else "loss/description"
        return {name: total / count} if count else {}

    def describe(self, batches: Batches) -> list[str]:
        """Return what the model says of the pairs of all rows."""
        parts = [range(start, min(start + AT_ONCE, len(batches))) for start in range(0, len(batches), AT_ONCE)]
        return [text for rows in parts for text in self.captioner.write(batches.pictures.features(rows))]


def _by_side(embeddings: Tensor) -> Tensor:
    """Return ``(2, B, e)`` of ``(2 B, e)``, first ones before second ones."""
    return embeddings.unflatten(0, (2, -1))


def _align(images: Tensor, texts: Tensor, identity: Tensor) -> Tensor:
    """Return the alignment, summed over both sides; ``(2, B, e)`` each, and ``(B, 2)`` identities."""
    same = identity.to(images.device).unbind(1)
    return torch.stack([alignment_loss(*side) for side in zip(images, texts, same, strict=True)]).sum()


def _check(what: str, value: float, number: int) -> None:
    if not math.isfinite(value):
        raise TrainingError(f"step {number + 1}: {what} is {value}; a lower optimiser.learning_rate may help")


def falling(done: float, floor: float) -> float:
    """Return by how much a rate is multiplied when so much is done: from 1 along a cosine to ``floor``."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2
