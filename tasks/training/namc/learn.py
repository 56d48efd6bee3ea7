"""One step of NAMC's training, and what is measured on held-out rows (paper 001, Eq. 2: the sum of three losses).

Adam with two learning rates, each falling along a cosine to a floor of its own: a third of it for reconstruction and
description, a tenth for the noise module, which begins at a third of theirs (published: 3e-4 to 1e-4, 1e-4 to 1e-5).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad_norm_

from schemas.errors import TrainingError
from schemas.training import TrainConfig
from tasks.models.namc.namc import Described
from tasks.models.namc.noise import Draw
from tasks.training.losses.namc import IGNORED, align, describe, reconstruct
from tasks.training.namc.material import Batches, Material
from tasks.training.namc.pictures import to_patches
from tasks.training.namc.saved import Captioner

if TYPE_CHECKING:
    from torch import Tensor

RATE = 1e-3
"""Of the small model, where none is set; the paper's is 3e-4."""
FLOOR, NOISE_SHARE, NOISE_FLOOR = 1 / 3, 1 / 3, 1 / 10
AT_ONCE = 64
"""Held-out rows that are measured, or described, at once."""


@dataclass
class Learner:
    """Hold a model in training."""

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
        self.optimiser = torch.optim.Adam(groups, lr=rate)

    def step(self, batch: Described, identity: "Tensor", *, seeds: Sequence[int], number: int) -> dict[str, float]:
        """Learn from a batch, and return what was measured; ``number`` is the step, from 0.

        Raises:
            TrainingError: the loss is not finite.
        """
        self.captioner.model.train()
        losses, masked = self._losses(batch, identity, seeds)
        loss = torch.stack(list(losses.values())).sum()
        if not torch.isfinite(loss):
            raise TrainingError(
                f"step {number + 1}: the loss is {loss.item()}; a lower optimiser.learning_rate may help"
            )
        for group in self.optimiser.param_groups:
            group["lr"] = group["top"] * falling(number / max(self.steps, 1), group["floor"])
        self.optimiser.zero_grad()
        loss.backward()
        # Each group by itself: cosines / 0.02 have slopes hundreds of times those of the other losses.
        norms = [clip_grad_norm_(group["params"], self.config.optimiser.clip) for group in self.optimiser.param_groups]
        self.optimiser.step()
        found = {f"loss/{name}": value.item() for name, value in losses.items()} if len(losses) > 1 else {}
        noise = {"grad_norm/noise": norms[1].item()} if len(norms) > 1 else {}
        rate = self.optimiser.param_groups[0]["lr"]
        return {
            "loss": loss.item(), **found, **masked, "grad_norm": norms[0].item(), **noise, "learning_rate": rate,
        }  # fmt: skip

    def _losses(
        self, batch: Described, identity: "Tensor", seeds: Sequence[int]
    ) -> "tuple[dict[str, Tensor], dict[str, float]]":
        """Return the losses that are summed, and the shares that were masked."""
        own, words, model = self.config.namc, self.captioner.words, self.captioner.model
        following = batch.written[:, 1:]
        labels = following.masked_fill(following == words.pad, IGNORED)
        if model.noise is None:
            return {"description": describe(model(batch.features, batch.written), labels)}, {}
        draw = Draw(seeds=seeds, image_share=own.image_share, text_share=own.text_share)
        found = model.denoise(batch, draw, mask_token=words.mask)
        hidden = found.hidden[:, 1:]
        labels = labels.masked_fill(hidden, words.mask if own.learn_masked else IGNORED)
        sides = zip(found.images.chunk(2), found.texts.chunk(2), identity.unbind(1), strict=True)
        losses = {
            "alignment": torch.stack([align(*side) for side in sides]).sum(),
            "description": describe(found.next_tokens, labels),
        }
        if own.reconstruct:
            codes = batch.codes.transpose(0, 1).flatten(0, 1)
            losses["reconstruction"] = reconstruct(found.codes, codes, found.masked)
        shares = {"masked/places": found.masked.float().mean().item()}
        return losses, shares | {
            "masked/words": hidden.float().sum().item() / max((batch.numbers >= 0).sum().item(), 1)
        }

    @torch.no_grad()
    def measure(self, batches: Batches, rows: int) -> dict[str, float]:
        """Return the mean loss per token of describing held-out rows, nothing masked; not the sum of all losses."""
        model, pad = self.captioner.model.eval(), self.captioner.words.pad
        total, count = 0.0, 0
        for start in range(0, rows, AT_ONCE):
            batch, _ = batches.make(range(start, min(start + AT_ONCE, rows)))
            following = batch.written[:, 1:]
            labels = following.masked_fill(following == pad, IGNORED)
            tokens = int((labels != IGNORED).sum())
            total += describe(model(batch.features, batch.written), labels).item() * tokens
            count += tokens
        name = "loss" if self.captioner.model.noise is None else "loss/description"
        return {name: total / count} if count else {}

    def describe(self, material: Material, rows: Sequence[int]) -> list[str]:
        """Return what the model says of pairs, many at once."""
        said: list[str] = []
        for start in range(0, len(rows), AT_ONCE):
            features = to_patches(material.some(rows[start : start + AT_ONCE]))
            said += self.captioner.write(features, self.config.namc)
        return said


def falling(done: float, floor: float) -> float:
    """Return by how much a rate is multiplied when so much is done: from 1 along a cosine to ``floor``."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2
