"""Retriever of ADPO: proposes negatives, is rewarded by the policy's loss on them, and moves towards harder ones.

q(T' | X1, X2) is a softmax of ``scale * cos(pair, text) / tau`` over candidates of the pool (paper
000, Eq. 3 and section 6.1); it ascends on the policy's loss by REINFORCE (Eq. 7; Algorithm 1 has
the signs reversed) with Adam, as in the paper. Ours: a running baseline from log 2, the reward at
equal policy and reference; a separate generator per draw (``pool``), so that a resumed run needs no
random state; and the warm-up, CLIP4IDC's own training: in a batch each pair must find its text, and
each text its pair. New heads would start with unrelated negatives, and REINFORCE learns slowly;
after some seconds of warm-up q prefers texts similar to the pair's own.

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
from pairwright.tasks.training.retriever.candidate_pool import NONE, Places, Pool, generator_of
from pairwright.tasks.training.retriever.encoders import Encoder

log = logging.getLogger(__name__)
BATCH, SMALL_BATCH = (
    256,
    32,
)  # rows per step of the warm-up; the second where rows need passes of a tower
RATE, SLOW_RATE = 1e-3, 1e-4
START = math.log(2)  # -log sigmoid(0): the reward of a policy equal to the reference
MEMORY = 0.9  # decay of the running baseline (ours)
Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors in place by their means over all ranks; every rank passes the same shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Negatives of a batch of B rows."""

    places: Places  # (B,) rows
    ids: Places  # (B, m) texts of the pool; ``NONE`` for a row without candidates
    texts: tuple[
        tuple[str, ...], ...
    ]  # m negatives per row, possibly repeated; none for a row without candidates
    log_q: Tensor  # (B, m), differentiable
    metrics: dict[str, float]


@dataclass(kw_only=True)
class Retriever:
    """Network that proposes negatives and learns; one per process, all with the same weights."""

    pool: Pool
    encoder: Encoder
    config: AdpoConfig
    seed: int
    average: Average | None = None  # ``None``: there is one rank
    baseline: float = START
    drawn: int = 0  # number of proposals, which seeds the next one
    steps: int = 0
    _gathered: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Since the last step: batches, sum of rewards, number of rewards."""

    def __post_init__(self) -> None:
        groups = self.encoder.groups(self.config.retriever_learning_rate)
        self._weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        self._optimiser = torch.optim.Adam(groups, fused=True)

    def propose(self, places: Sequence[int] | Places) -> Proposal:
        """Return m negatives for each row, by position in the pool's entries, sampled from q."""
        rows, step = np.asarray(places, dtype=np.int64), self.drawn
        self.drawn += 1
        candidates = self._candidates(rows, step)
        marks: list[int] = self.pool.marks[rows].tolist()
        generators = (
            generator_of(mark, seed=self.seed, step=step, use="negatives") for mark in marks
        )
        draws = np.array([generator.random(self.config.samples) for generator in generators])
        logits = self.logits(rows, candidates)
        present = torch.from_numpy(candidates != NONE).to(logits.device)
        columns, log_q, entropy = sample(logits, present, draws)
        ids = np.where(
            (candidates != NONE).any(1)[:, None], np.take_along_axis(candidates, columns, 1), NONE
        )
        texts = tuple(
            tuple(self.pool.texts[number] for number in row if number != NONE)
            for row in ids.tolist()
        )
        metrics = self._describe(entropy, present.sum(1).float())
        return Proposal(places=rows, ids=ids, texts=texts, log_q=log_q, metrics=metrics)

    def _candidates(self, rows: Places, step: int) -> Places:
        """Draw each row's candidates; with a tower, the rows of a batch share those of the first one.

        A shared text that is a row's own is then missing from its candidates (ours).
        """
        if not self.encoder.wants_pixels:
            return self.pool.draw(rows, self.config.candidates, seed=self.seed, step=step)
        shared = self.pool.draw(rows[:1], self.config.candidates, seed=self.seed, step=step)
        everybody = np.repeat(shared, len(rows), axis=0)
        return np.where((everybody == NONE) | self.pool.excluded(rows, everybody), NONE, everybody)

    def logits(self, rows: Places, candidates: Places) -> Tensor:
        """Return ``(B, N)`` float32: ``scale * cos / tau``; each distinct text is encoded once."""
        different, columns = np.unique(candidates, return_inverse=True)
        # Heads compute in float32; towers in the policy's precision.
        kind = self._weights[0].device.type
        with nullcontext() if self.encoder.wants_pixels else torch.autocast(kind, enabled=False):
            pairs = self.encoder.pairs(rows)
            texts = self.encoder.texts(np.maximum(different, 0))
        with torch.autocast(pairs.device.type, enabled=False):
            cosines = pairs.float() @ texts.float().T
            wanted = torch.from_numpy(columns.reshape(candidates.shape)).to(cosines.device)
            return cosines.gather(1, wanted) * (self.config.logit_scale / self.config.temperature)

    def _describe(self, entropy: Tensor, available: Tensor) -> dict[str, float]:
        most = available.clamp(min=1).log()
        values = {
            "retriever/entropy": entropy,
            # Of the uniform entropy; 1 for a single candidate.
            "retriever/entropy share": torch.where(
                most > 0, entropy / most.clamp(min=1e-12), 1.0
            ).clamp(0, 1),
            # number of equally likely candidates with the same entropy
            "retriever/effective": entropy.exp(),
            "retriever/candidates": available,
        }
        having = available > 0
        means = torch.stack(
            [(value * having).sum() for value in values.values()]
        ) / having.sum().clamp(min=1)
        about = {
            "retriever/tau": self.config.temperature,
            "retriever/scale": self.config.logit_scale,
        }
        return dict(zip(values, means.tolist(), strict=True)) | about

    def learn(self, proposal: Proposal, rewards: Tensor, *, last: bool = True) -> dict[str, float]:
        """Add the gradient of a proposed batch; step on the ``last`` one before the policy's step.

        ``rewards``, ``(B, m)``, are R = -log sigmoid(M) of each negative, NaN where absent.
        """
        rewards = rewards.detach().to(proposal.log_q)
        loss = retriever_loss(
            proposal.log_q, rewards, self.baseline if self.config.baseline == "running" else 0.0
        )
        if not torch.isfinite(loss) or rewards.isinf().any():
            raise TrainingError(
                "adpo: the retriever's loss is not finite, since a negative's log-probability is not"
            )
        if loss.requires_grad:
            loss.backward()
        there = ~rewards.isnan()
        total, count = float(rewards.where(there, 0).sum()), float(there.sum())
        self._gathered = [a + b for a, b in zip(self._gathered, (1.0, total, count), strict=True)]
        if last:
            self.step()
        return {
            "retriever/loss": float(loss.detach()),
            **({"retriever/reward": total / count} if count else {}),
        }

    def step(self) -> None:
        """Step on the mean gradient since the last step, over all ranks; zeros without any batch."""
        batches, total, count = self._gathered
        batches = max(batches, 1.0)
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad / batches
        sums = torch.tensor([total, count], device=self._weights[0].device)
        if self.average:
            self.average(
                [*(weight.grad for weight in self._weights if weight.grad is not None), sums]
            )
        self._optimiser.step()
        self._optimiser.zero_grad()
        total, count = sums.tolist()
        if count:
            self.baseline = MEMORY * self.baseline + (1 - MEMORY) * total / count
        self._gathered = [0.0, 0.0, 0.0]
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the complete state between steps."""
        numbers = {
            "baseline": self.baseline,
            "drawn": self.drawn,
            "steps": self.steps,
            "texts": len(self.pool.texts),
        }
        weights, moments = self.encoder.network.state_dict(), self._optimiser.state_dict()
        return {
            "about": self.encoder.about,
            "network": weights,
            "optimiser": moments,
            "numbers": numbers,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        numbers = state["numbers"]
        if state["about"] != self.encoder.about or numbers["texts"] != len(self.pool.texts):
            raise TrainingError("adpo: the checkpoint's retriever has another encoder or pool")
        self.encoder.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.baseline, self.drawn, self.steps = (
            numbers["baseline"],
            numbers["drawn"],
            numbers["steps"],
        )


def sample(
    logits: Tensor, present: Tensor, shares: NDArray[np.float64]
) -> tuple[Places, Tensor, Tensor]:
    """Draw m of each of B pairs' N candidates, ``present`` of ``(B, N)``, independently from q.

    ``shares``, ``(B, m)`` in (0, 1), are the draws' positions in the cumulative distribution.
    Returns their ``(B, m)`` indices and log-probabilities, differentiable, both 0 without
    candidates; and ``(B,)`` entropies in nats, detached.
    """
    log_q = logits.masked_fill(~present, torch.finfo(logits.dtype).min).log_softmax(1)
    detached, there = log_q.detach().cpu().double(), present.cpu()
    ends = np.cumsum(detached.exp().where(there, 0.0).numpy(), axis=1)
    columns = (ends[:, None, :] <= (shares * ends[:, -1:])[:, :, None]).sum(-1)
    columns = np.where(ends[:, -1:] > 0, columns, 0)
    drawn = log_q.gather(1, torch.from_numpy(columns).to(logits.device)).where(
        present.any(1, keepdim=True), 0.0
    )
    entropy = -(detached.exp() * detached).where(there, 0.0).sum(1)
    return columns, drawn, entropy.float().clamp(min=0).to(logits.device)


def warm_up(retriever: Retriever, steps: int) -> float:
    """Train the encoder for some steps; return the final share of pairs whose own text ranks first."""
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
    log.info(
        "retriever: %d steps of warm-up, %.0f %% found, %.1f s",
        steps,
        100 * found,
        time.monotonic() - began,
    )
    return found


def _contrast(retriever: Retriever, places: Places) -> tuple[Tensor, float]:
    """Return the symmetric cross-entropy of a batch, and the share of pairs whose own text ranks first."""
    ids, columns = np.unique(
        retriever.pool.own[places, 0], return_inverse=True
    )  # the batch's texts, each row's own
    candidates = np.broadcast_to(ids, (len(places), len(ids)))
    free = ~retriever.pool.excluded(places, candidates)  # (B, U) which texts are wrong for a row
    logits = retriever.logits(places, candidates)
    target, wrong = (torch.from_numpy(one).to(logits.device) for one in (columns, free))
    owners, least = torch.arange(len(places), device=logits.device), torch.finfo(logits.dtype).min
    own = functional.one_hot(target, len(ids)).bool()
    to_texts = logits.masked_fill(~(wrong | own), least)
    # Pairs with the same text are not negatives of each other.
    to_pairs = logits[:, target].masked_fill(
        ~(wrong[:, target] | (owners[:, None] == owners)), least
    )
    loss = functional.cross_entropy(to_texts, target) + functional.cross_entropy(to_pairs.T, owners)
    return loss / 2, float((to_texts.argmax(1) == target).float().mean())
