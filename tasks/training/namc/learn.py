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

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc.namc import Described
from pairwright.tasks.training.load_model import choose_precision
from pairwright.tasks.training.losses.namc import IGNORED, describe
from pairwright.tasks.training.namc.accumulate import Accumulator
from pairwright.tasks.training.namc.material import Batches, Material
from pairwright.tasks.training.namc.saved import Captioner
from pairwright.tasks.training.tune_model import computing

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
        # Fused: a seventh of the time on a CPU, where most weights are rows of CLIP's vocabulary.
        self.optimiser = torch.optim.Adam(groups, lr=rate, fused=True)
        self.accumulator = Accumulator(
            self.captioner, self.config.namc, self.config.optimiser.per_device_train_batch_size, self._autocast
        )

    @property
    def _autocast(self) -> torch.autocast:
        return computing(self.captioner.device, choose_precision(self.config))

    def step(self, batch: Described, identity: "Tensor", *, seeds: Sequence[int], number: int) -> dict[str, float]:
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
        losses, masked = self.accumulator.backward(batch, identity, seeds)
        loss = sum(losses.values())
        _check("the loss", loss, number)
        for group in self.optimiser.param_groups:
            group["lr"] = group["top"] * falling(number / max(self.steps, 1), group["floor"])
        # Each group by itself: cosines / 0.02 have slopes hundreds of times those of the other losses.
        clip, groups = self.config.optimiser.max_grad_norm, self.optimiser.param_groups
        norms = [clip_grad_norm_(group["params"], clip).item() for group in groups]
        _check("the norm of the gradients", sum(norms), number)  # before the weights are no numbers, too
        self.optimiser.step()
        found = {f"loss/{name}": value for name, value in losses.items()} if len(losses) > 1 else {}
        noise = {"grad_norm/noise": norms[1]} if len(norms) > 1 else {}
        rate = self.optimiser.param_groups[0]["lr"]
        return {"loss": loss, **found, **masked, "grad_norm": norms[0], **noise, "learning_rate": rate}

    @torch.no_grad()
    def measure(self, batches: Batches, rows: int) -> dict[str, float]:
        """Return the mean loss per token of describing held-out rows, nothing masked; not the sum of all losses."""
        model, pad = self.captioner.model.eval(), self.captioner.words.pad
        total, count = 0.0, 0
        for start in range(0, rows, AT_ONCE):
            batch, _ = batches.make(range(start, min(start + AT_ONCE, rows)))
            batch = batch.to(self.captioner.device)
            following = batch.written[:, 1:]
            labels = following.masked_fill(following == pad, IGNORED)
            tokens = int((labels != IGNORED).sum())
            with self._autocast:
                total += describe(model(batch.features, batch.written), labels).item() * tokens
            count += tokens
        name = "loss" if self.captioner.model.noise is None else "loss/description"
        return {name: total / count} if count else {}

    def describe(self, material: Material, rows: Sequence[int]) -> list[str]:
        """Return what the model says of pairs, many at once."""
        said: list[str] = []
        for start in range(0, len(rows), AT_ONCE):
            features = material.pictures.features(rows[start : start + AT_ONCE])
            said += self.captioner.write(features)
        return said


def _check(what: str, value: float, number: int) -> None:
    if not math.isfinite(value):
        raise TrainingError(f"step {number + 1}: {what} is {value}; a lower optimiser.learning_rate may help")


def falling(done: float, floor: float) -> float:
    """Return by how much a rate is multiplied when so much is done: from 1 along a cosine to ``floor``."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2
