"""ADPO's adversary: it proposes negatives, is told how hard they were for the policy, and moves towards harder ones.

q(T' | X1, X2) is a softmax of ``scale * cos(pair, text) / tau`` over candidates drawn from the pool (paper 000, Eq. 3
and section 6.1); it ascends on the policy's loss by REINFORCE (Eq. 7; Algorithm 1's signs are the other way round) with
Adam, as the paper's. Ours: the running baseline, which starts at log 2, the reward where policy and reference agree;
that each draw has a generator of its own (``pool``), of which a resumed run needs no state; and the
warm-up. CLIP4IDC, which the paper's retriever follows, is trained so: of a batch's texts, each pair must find its own,
and each text its pair. New heads would begin with negatives that have nothing to do with the pair, and REINFORCE learns
slowly; after some seconds of this, q prefers texts that are like the pair's own.

Needs PyTorch. The state is the encoder's weights, Adam's two moments, and five numbers.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import AdpoConfig
from pairwright.tasks.training.losses import retriever_loss
from pairwright.tasks.training.retriever.encoders import Encoder
from pairwright.tasks.training.retriever.pool import NONE, Places, Pool, generator_of

log = logging.getLogger(__name__)
BATCH, SMALL_BATCH = 256, 32
"""Rows of a step of the warm-up; the second where each row costs passes of a tower."""
RATE, SLOW_RATE = 1e-3, 1e-4
START = math.log(2)
"""The reward -log sigmoid(0) of a policy that is the reference."""
MEMORY = 0.9
"""Share of the running baseline that each step keeps (ours)."""
Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors, in place, by their means over all ranks; every rank calls it with the same shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Negatives of a batch of B rows."""

    places: Places
    """(B,) which rows."""
    ids: Places
    """(B, m) which texts of the pool; ``NONE`` for a row that may have none."""
    texts: tuple[tuple[str, ...], ...]
    """Per row its m negatives, which may repeat; empty for a row that may have none."""
    log_q: Tensor
    """(B, m), differentiable."""
    metrics: dict[str, float]


@dataclass(kw_only=True)
class Retriever:
    """Network that proposes negatives and learns; one per process, all with the same weights."""

    pool: Pool
    encoder: Encoder
    config: AdpoConfig
    seed: int
    average: Average | None = None
    """``None``: there is one rank."""
    baseline: float = START
    drawn: int = 0
    """Proposals made so far: what the random numbers of the next are drawn by."""
    steps: int = 0
    _gathered: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Since the last step: batches, sum of the rewards, number of them."""

    def __post_init__(self) -> None:
        """Make the optimiser."""
        groups = self.encoder.groups(self.config.retriever_learning_rate)
        self._weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        self._optimiser = torch.optim.Adam(groups, fused=True)

    def propose(self, places: Sequence[int] | Places) -> Proposal:
        """Return m negatives for each row, by its place among the pool's entries, sampled from q."""
        rows, step = np.asarray(places, dtype=np.int64), self.drawn
        self.drawn += 1
        candidates = self._candidates(rows, step)
        marks: list[int] = self.pool.marks[rows].tolist()
        generators = (generator_of(mark, seed=self.seed, step=step, use="negatives") for mark in marks)
        draws = np.array([generator.random(self.config.samples) for generator in generators])
        logits = self.logits(rows, candidates)
        found = sample(logits, torch.from_numpy(candidates != NONE).to(logits.device), draws)
        ids = np.where((candidates != NONE).any(1)[:, None], np.take_along_axis(candidates, found.columns, 1), NONE)
        return Proposal(
            places=rows,
            ids=ids,
            texts=tuple(tuple(self.pool.texts[number] for number in row if number != NONE) for row in ids.tolist()),
            log_q=found.log_q,
            metrics=self._describe(found),
        )

    def _candidates(self, rows: Places, step: int) -> Places:
        """Draw each row's own candidates; where each text costs a pass of a tower, the rows share those of the first.

        A shared text that is one of a row's own is then missing from its candidates (ours).
        """
        if not self.encoder.wants_pixels:
            return self.pool.draw(rows, self.config.candidates, seed=self.seed, step=step)
        shared = self.pool.draw(rows[:1], self.config.candidates, seed=self.seed, step=step)
        everybody = np.repeat(shared, len(rows), axis=0)
        return np.where((everybody == NONE) | self.pool.excluded(rows, everybody), NONE, everybody)

    def logits(self, rows: Places, candidates: Places) -> Tensor:
        """Return ``(B, N)`` float32: ``scale * cos / tau``; each different text is encoded once."""
        different, columns = np.unique(candidates, return_inverse=True)
        # Heads compute in float32 whatever the policy computes in; towers may have its precision.
        kind = self._weights[0].device.type
        with nullcontext() if self.encoder.wants_pixels else torch.autocast(kind, enabled=False):
            pairs = self.encoder.pairs(rows)
            texts = self.encoder.texts(np.maximum(different, 0))
        with torch.autocast(pairs.device.type, enabled=False):
            cosines = pairs.float() @ texts.float().T
            wanted = torch.from_numpy(columns.reshape(candidates.shape)).to(cosines.device)
            return cosines.gather(1, wanted) * (self.config.logit_scale / self.config.temperature)

    def _describe(self, found: "Drawn") -> dict[str, float]:
        most = found.available.clamp(min=1).log()
        share = torch.where(most > 0, found.entropy / most.clamp(min=1e-12), torch.ones_like(most)).clamp(0, 1)
        values = {
            "retriever/entropy": found.entropy,
            "retriever/entropy share": share,  # of that of equal chances; 1 where there is no choice
            "retriever/effective": found.entropy.exp(),  # candidates that equal chances would give the same entropy
            "retriever/candidates": found.available,
        }
        having = found.available > 0
        means = torch.stack([(value * having).sum() for value in values.values()]) / having.sum().clamp(min=1)
        about = {"retriever/tau": self.config.temperature, "retriever/scale": self.config.logit_scale}
        return dict(zip(values, means.tolist(), strict=True)) | about

    def learn(self, proposal: Proposal, rewards: Tensor, *, last: bool = True) -> dict[str, float]:
        """Add the gradient of one batch; where it is the last before the policy's step, take a step, too.

        Args:
            proposal: made since the last step, so that its log q is that of the parameters which drew it.
            rewards: ``(B, m)`` R = -log sigmoid(M) of each negative, NaN where there is none.
            last: whether the optimiser steps, on the mean over the batches since the last step and over all ranks.
        """
        rewards = rewards.detach().to(proposal.log_q)
        loss = retriever_loss(proposal.log_q, rewards, self.baseline if self.config.baseline == "running" else 0.0)
        if not torch.isfinite(loss) or rewards.isinf().any():
            raise TrainingError("adpo: the retriever's loss is not finite: a negative's log-probability is not")
        if loss.requires_grad:
            loss.backward()
        there = ~rewards.isnan()
        total, count = float(rewards.where(there, 0).sum()), float(there.sum())
        self._gathered = [a + b for a, b in zip(self._gathered, (1.0, total, count), strict=True)]
        if last:
            self.step()
        return {"retriever/loss": float(loss.detach()), **({"retriever/reward": total / count} if count else {})}

    def step(self) -> None:
        """Step on the mean gradient since the last step, over all ranks; one without any gives zeros."""
        batches, total, count = self._gathered
        batches = max(batches, 1.0)
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad / batches
        sums = torch.tensor([total, count], device=self._weights[0].device)
        if self.average:
            self.average([*(weight.grad for weight in self._weights if weight.grad is not None), sums])
        self._optimiser.step()
        self._optimiser.zero_grad()
        total, count = sums.tolist()
        if count:
            self.baseline = MEMORY * self.baseline + (1 - MEMORY) * total / count
        self._gathered = [0.0, 0.0, 0.0]
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next proposals and steps depend on; between steps only."""
        numbers = {"baseline": self.baseline, "drawn": self.drawn, "steps": self.steps, "texts": len(self.pool.texts)}
        weights, moments = self.encoder.network.state_dict(), self._optimiser.state_dict()
        return {"about": self.encoder.about, "network": weights, "optimiser": moments, "numbers": numbers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
        numbers = state["numbers"]
        if state["about"] != self.encoder.about or numbers["texts"] != len(self.pool.texts):
            raise TrainingError("adpo: the retriever of the checkpoint is another one: its encoder or its pool differs")
        self.encoder.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.baseline, self.drawn, self.steps = numbers["baseline"], numbers["drawn"], numbers["steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What was drawn for B pairs from their N candidates."""

    columns: Places
    """(B, m) which candidates; 0 for a pair that has none."""
    log_q: Tensor
    """(B, m) their log-probabilities, differentiable; 0 without a gradient for a pair that has none."""
    entropy: Tensor
    """(B,) of q in nats, detached."""
    available: Tensor
    """(B,) candidates that there are."""


def sample(logits: Tensor, present: Tensor, shares: NDArray[np.float64]) -> Drawn:
    """Draw m of each pair's candidates, independently, each as often as q says.

    Args:
        logits: ``(B, N)`` float32.
        present: ``(B, N)`` bool: which candidates there are.
        shares: ``(B, m)`` numbers from 0 to 1, exclusive: where in the cumulative distribution each draw falls.
    """
    log_q = logits.masked_fill(~present, torch.finfo(logits.dtype).min).log_softmax(1)
    detached, there = log_q.detach().cpu().double(), present.cpu()
    # A candidate without a chance has a part of no length of the cumulative distribution: nothing falls into it.
    ends = np.cumsum(detached.exp().where(there, 0.0).numpy(), axis=1)
    columns = (ends[:, None, :] <= (shares * ends[:, -1:])[:, :, None]).sum(-1)
    columns = np.where(ends[:, -1:] > 0, columns, 0)
    chosen = torch.from_numpy(columns).to(logits.device)
    having = present.any(1, keepdim=True)
    entropy = -(detached.exp() * detached).where(there, 0.0).sum(1)
    return Drawn(
        columns=columns,
        log_q=log_q.gather(1, chosen).where(having, 0.0),
        entropy=entropy.float().clamp(min=0).to(logits.device),
        available=present.sum(1).float(),
    )


def warm_up(retriever: Retriever, steps: int) -> float:
    """Train the encoder for some steps; return the share of pairs that found their text in the last one."""
    pool = retriever.pool
    groups = retriever.encoder.groups(SLOW_RATE if retriever.encoder.wants_pixels else RATE)
    optimiser = torch.optim.Adam(groups, fused=True)
    rows = np.flatnonzero(pool.trained & (pool.own != NONE).any(1))
    size = min(SMALL_BATCH if retriever.encoder.wants_pixels else BATCH, len(rows))
    began, found = time.monotonic(), 0.0
    for step in range(steps if len(rows) > 1 and len(pool.texts) > 1 else 0):
        places = np.random.default_rng([retriever.seed, step]).choice(rows, size, replace=False)
        loss, found = _contrast(retriever, places)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if retriever.average:
        with torch.no_grad():
            retriever.average([weight.data for group in groups for weight in group["params"]])
    log.info("retriever: %d steps of warm-up, %.0f %% found, %.1f s", steps, 100 * found, time.monotonic() - began)
    return found


def _contrast(retriever: Retriever, places: Places) -> tuple[Tensor, float]:
    """Return the symmetric cross-entropy of a batch, and the share of pairs whose own text has the highest logit."""
    ids, columns = np.unique(retriever.pool.own[places, 0], return_inverse=True)  # the batch's texts, each row's own
    candidates = np.broadcast_to(ids, (len(places), len(ids)))
    free = ~retriever.pool.excluded(places, candidates)  # (B, U) which texts are wrong for a row
    logits = retriever.logits(places, candidates)
    target, wrong = (torch.from_numpy(one).to(logits.device) for one in (columns, free))
    owners, least = torch.arange(len(places), device=logits.device), torch.finfo(logits.dtype).min
    own = functional.one_hot(target, len(ids)).bool()
    to_texts = logits.masked_fill(~(wrong | own), least)
    # Of several pairs for which one text is right, none is a rival of another.
    to_pairs = logits[:, target].masked_fill(~(wrong[:, target] | (owners[:, None] == owners)), least)
    loss = functional.cross_entropy(to_texts, target) + functional.cross_entropy(to_pairs.T, owners)
    return loss / 2, float((to_texts.argmax(1) == target).float().mean())
