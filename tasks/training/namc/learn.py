"""Steps of NAMC's training (paper 001, Eq. 2: the sum of three losses), and what is measured on held-out rows.

Adam with two learning rates, each falling along a cosine to a floor of its own: a third of it for reconstruction and
description, a tenth for the noise module, which begins at a third of theirs (published: 3e-4 to 1e-4, 1e-4 to 1e-5).
A step's rows go through the model ``optimiser.per_device_train_batch_size`` at a time, and alignment compares those
that go through together: the paper's 512 only where so many fit.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc import Described
from pairwright.tasks.training.load_model import choose_precision
from pairwright.tasks.training.namc.batches import Batches
from pairwright.tasks.training.namc.captioner import Captioner
from pairwright.tasks.training.runs import Window
from pairwright.tasks.training.tune_model import computing

RATE = 1e-3
"""Of the small model, where none is set; the paper's is 3e-4."""
FLOOR, NOISE_SHARE, NOISE_FLOOR = 1 / 3, 1 / 3, 1 / 10
AT_ONCE = 64
"""Held-out rows that are measured, or described, at once."""


class Learner:
    """A model in training, for ``steps`` steps."""

    def __init__(self, captioner: Captioner, config: TrainConfig, steps: int) -> None:
        self.captioner, self.model, self.config, self.steps = captioner, captioner.model, config, steps
        model, rate = self.model, config.optimiser.learning_rate or RATE
        own = [*model.encoder.parameters(), *model.describer.parameters()]
        groups: list[dict[str, Any]] = [{"params": own, "top": rate, "floor": FLOOR}]
        if model.noise is not None:
            noise = list(model.noise.parameters())
            groups.append({"params": noise, "top": rate * NOISE_SHARE, "floor": NOISE_FLOOR})
        # Fused: a seventh of the time on a CPU, where most weights are rows of CLIP's vocabulary.
        self.optimiser = torch.optim.Adam(groups, lr=rate, fused=True)

    def step(self, batches: Iterable[Described], *, number: int, rows: int) -> dict[str, float]:
        """Learn from batches that have so many rows together, as step ``number`` (from 0); return what was measured."""
        torch.manual_seed(int(np.random.default_rng([self.config.seed, number]).integers(2**63)))  # masks and dropout
        self.model.train()
        self.optimiser.zero_grad()
        window = Window()
        for batch in batches:
            loss, values = self.losses(batch.to(self.captioner.device))
            _check("the loss", loss.item(), number)
            (loss * (len(batch.written) / rows)).backward()
            window.add({"loss": loss.item()} | values, weight=len(batch.written))
        groups = self.optimiser.param_groups
        for group in groups:
            group["lr"] = group["top"] * falling(number / self.steps, group["floor"])
        # Each group by itself: cosines / 0.02 have slopes hundreds of times those of the other losses.
        norms = [clip_grad_norm_(group["params"], self.config.optimiser.max_grad_norm).item() for group in groups]
        _check("the norm of the gradients", sum(norms), number)  # before the weights are no numbers, too
        self.optimiser.step()
        measured = dict(zip(("grad_norm", "grad_norm/noise"), norms, strict=False))
        return window.take() | measured | {"learning_rate": groups[0]["lr"]}

    def losses(self, batch: Described) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch; where something is masked, each of the summed ones, and how much is."""
        own, words = self.config.namc, self.captioner.words
        with self._autocast():
            if self.model.noise is None:
                return self.model(batch.features, batch.written, pad=words.pad), {}
            losses, masked = self.model.pretrain(batch, own, pad=words.pad, mask=words.mask)
        values = {f"loss/{name}": loss.item() for name, loss in losses.items()}
        values |= {f"masked/{name}": share.item() for name, share in masked.items()}
        return torch.stack(list(losses.values())).sum(), values

    def _autocast(self) -> torch.autocast:
        return computing(self.captioner.device, choose_precision(self.config))

    @torch.no_grad()
    def measure(self, held_out: Batches) -> dict[str, float]:
        """Return the mean loss per token of describing held-out rows, nothing masked; not the sum of all losses."""
        model, pad = self.model.eval(), self.captioner.words.pad
        total, count = 0.0, 0
        for batch in map(held_out.make, _parts(held_out)):
            own = batch.to(self.captioner.device)
            tokens = int((own.written[:, 1:] != pad).sum())
            with self._autocast():
                total += model(own.features, own.written, pad=pad).item() * tokens
            count += tokens
        return {"loss" if model.noise is None else "loss/description": total / count} if count else {}

    def describe(self, held_out: Batches) -> list[str]:
        """Return what the model says of the pairs of all rows."""
        return [text for rows in _parts(held_out) for text in self.captioner.write(held_out.features(rows))]


def _parts(batches: Batches) -> list[range]:
    return [range(start, min(start + AT_ONCE, len(batches))) for start in range(0, len(batches), AT_ONCE)]


def _check(what: str, value: float, number: int) -> None:
    if not math.isfinite(value):
        raise TrainingError(f"step {number + 1}: {what} is {value}; a lower optimiser.learning_rate may help")


def falling(done: float, floor: float) -> float:
    """Return by how much a rate is multiplied when so much is done: from 1 along a cosine to ``floor``."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2
