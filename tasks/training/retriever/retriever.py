"""Retriever of ADPO: proposes negatives, and learns from the policy's loss on them.

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
BATCH = 256  # rows per step of the warm-up
SMALL_BATCH = 32  # where rows need passes of a tower
RATE = 1e-3
SLOW_RATE = 1e-4
START = math.log(2)  # -log sigmoid(0): the reward of a policy equal to the reference
MEMORY = 0.9  # decay of the running baseline (ours)
Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors in place by their means over all ranks; every rank passes the same shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Negatives of a batch of B rows."""

    places: Places  # (B,) rows
    ids: Places  # (B, m) texts of the pool; ``NONE`` for a row without candidates
    # m negatives per row, possibly repeated; none for a row without candidates
    texts: tuple[tuple[str, ...], ...]
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
        self._weights: list[Tensor] = _list_weights(groups)
        self._optimiser = torch.optim.Adam(groups, fused=True)

    def propose(self, places: Sequence[int] | Places) -> Proposal:
        """Return m negatives for each row, by position in the pool's entries, sampled from q."""
        rows = np.asarray(places, dtype=np.int64)
        step = self.drawn
        self.drawn += 1
        candidates = self._candidates(rows, step)
        shares = self._draw_shares(rows, step)
        logits = self.logits(rows, candidates)
        is_candidate = candidates != NONE
        present = torch.from_numpy(is_candidate).to(logits.device)
        columns, log_q, entropy = sample(logits, present, shares)
        drawn = np.take_along_axis(candidates, columns, 1)
        ids = np.where(is_candidate.any(1, keepdims=True), drawn, NONE)
        return Proposal(
            places=rows,
            ids=ids,
            texts=tuple(self._list_texts(numbers) for numbers in ids.tolist()),
            log_q=log_q,
            metrics=self._describe(entropy, present.sum(1).float()),
        )

    def _draw_shares(self, rows: Places, step: int) -> NDArray[np.float64]:
        """Return ``(B, m)``: where each draw lies in its row's cumulative distribution."""
        shares: list[NDArray[np.float64]] = []
        for mark in self.pool.marks[rows].tolist():
            generator = generator_of(
                mark,
                seed=self.seed,
                step=step,
                use="negatives",
            )
            shares.append(generator.random(self.config.samples))
        return np.array(shares)

    def _list_texts(self, numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.pool.texts[number] for number in numbers if number != NONE)

    def _candidates(self, rows: Places, step: int) -> Places:
        """Draw each row's candidates; with a tower, a batch shares those of its first row.

        A shared text that is a row's own is then missing from its candidates (ours).
        """
        if not self.encoder.wants_pixels:
            return self.pool.draw(rows, self.config.candidates, seed=self.seed, step=step)
        shared = self.pool.draw(rows[:1], self.config.candidates, seed=self.seed, step=step)
        candidates = np.repeat(shared, len(rows), axis=0)
        missing = (candidates == NONE) | self.pool.excluded(rows, candidates)
        return np.where(missing, NONE, candidates)

    def logits(self, rows: Places, candidates: Places) -> Tensor:
        """Return ``(B, N)`` float32: ``scale * cos / tau``; each distinct text is encoded once."""
        different, columns = np.unique(candidates, return_inverse=True)
        # Heads compute in float32; towers in the policy's precision.
        precision = nullcontext()
        if not self.encoder.wants_pixels:
            precision = torch.autocast(self._weights[0].device.type, enabled=False)
        with precision:
            pairs = self.encoder.encode_pairs(rows)
            texts = self.encoder.texts(np.maximum(different, 0))
        with torch.autocast(pairs.device.type, enabled=False):
            cosines = pairs.float() @ texts.float().T
            indices = torch.from_numpy(columns.reshape(candidates.shape)).to(cosines.device)
            scale = self.config.logit_scale / self.config.temperature
            return cosines.gather(1, indices) * scale

    def _describe(self, entropy: Tensor, available: Tensor) -> dict[str, float]:
        uniform = available.clamp(min=1).log()
        share = torch.where(uniform > 0, entropy / uniform.clamp(min=1e-12), 1.0)
        values = {
            "retriever/entropy": entropy,
            # Of the uniform entropy; 1 for a single candidate.
            "retriever/entropy share": share.clamp(0, 1),
            # number of equally likely candidates with the same entropy
            "retriever/effective": entropy.exp(),
            "retriever/candidates": available,
        }
        mask = available > 0
        sums = torch.stack([(value * mask).sum() for value in values.values()])
        means = sums / mask.sum().clamp(min=1)
        metrics = dict(zip(values, means.tolist(), strict=True))
        metrics["retriever/tau"] = self.config.temperature
        metrics["retriever/scale"] = self.config.logit_scale
        return metrics

    def learn(
        self,
        proposal: Proposal,
        rewards: Tensor,
        *,
        last: bool = True,
    ) -> dict[str, float]:
        """Add the gradient of a proposed batch; step on the ``last`` one before the policy's step.

        ``rewards``, ``(B, m)``, are R = -log sigmoid(M) of each negative, NaN where absent.
        """
        rewards = rewards.detach().to(proposal.log_q)
        baseline = self.baseline if self.config.baseline == "running" else 0.0
        loss = retriever_loss(proposal.log_q, rewards, baseline)
        if not torch.isfinite(loss) or rewards.isinf().any():
            raise TrainingError(
                "adpo: the retriever's loss is not finite, since a negative's log-probability is "
                "not"
            )
        if loss.requires_grad:
            loss.backward()
        present = ~rewards.isnan()
        total = float(rewards.where(present, 0).sum())
        count = float(present.sum())
        for index, number in enumerate((1.0, total, count)):
            self._gathered[index] += number
        if last:
            self.step()
        metrics = {"retriever/loss": float(loss.detach())}
        if count:
            metrics["retriever/reward"] = total / count
        return metrics

    def step(self) -> None:
        """Step on the mean gradient since the last step, over all ranks; 0 without any batch."""
        batches, total, count = self._gathered
        batches = max(batches, 1.0)
        gradients: list[Tensor] = []
        for weight in self._weights:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            else:
                weight.grad = weight.grad / batches
            gradients.append(weight.grad)
        sums = torch.tensor([total, count], device=self._weights[0].device)
        if self.average:
            self.average([*gradients, sums])
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
        return {
            "about": self.encoder.about,
            "network": self.encoder.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "numbers": numbers,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        numbers = state["numbers"]
        if state["about"] != self.encoder.about or numbers["texts"] != len(self.pool.texts):
            raise TrainingError("adpo: the checkpoint's retriever has another encoder or pool")
        self.encoder.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.baseline = numbers["baseline"]
        self.drawn = numbers["drawn"]
        self.steps = numbers["steps"]


def _list_weights(groups: Sequence[dict[str, Any]]) -> list[Tensor]:
    """Return the weights of an optimiser's parameter groups."""
    weights: list[Tensor] = []
    for group in groups:
        weights += group["params"]
    return weights


def sample(
    logits: Tensor, present: Tensor, shares: NDArray[np.float64]
) -> tuple[Places, Tensor, Tensor]:
    """Draw m of each of B pairs' N candidates, ``present`` of ``(B, N)``, independently from q.

    ``shares``, ``(B, m)`` in (0, 1), are the draws' positions in the cumulative distribution.
    Returns their ``(B, m)`` indices and log-probabilities, differentiable, both 0 without
    candidates; and ``(B,)`` entropies in nats, detached.
    """
    lowest = torch.finfo(logits.dtype).min
    log_q = logits.masked_fill(~present, lowest).log_softmax(1)
    detached = log_q.detach().cpu().double()
    present_cpu = present.cpu()
    probabilities = detached.exp().where(present_cpu, 0.0)
    columns = _find_columns(probabilities.numpy(), shares)
    indices = torch.from_numpy(columns).to(logits.device)
    has_candidates = present.any(1, keepdim=True)
    drawn = log_q.gather(1, indices).where(has_candidates, 0.0)
    entropy = _measure_entropy(detached, present_cpu)
    return columns, drawn, entropy.to(logits.device)


def _find_columns(probabilities: NDArray[np.float64], shares: NDArray[np.float64]) -> Places:
    """Return (B, m): the columns at these shares of the cumulative distributions, (B, N)."""
    ends = np.cumsum(probabilities, axis=1)
    totals = ends[:, -1:]
    positions = shares * totals
    is_before = ends[:, None, :] <= positions[:, :, None]
    return np.where(totals > 0, is_before.sum(-1), 0)


def _measure_entropy(log_q: Tensor, present: Tensor) -> Tensor:
    """Return (B,) entropies in nats of (B, N) log-probabilities, of those present."""
    terms = (log_q.exp() * log_q).where(present, 0.0)
    entropy = -terms.sum(1)
    return entropy.float().clamp(min=0)


def warm_up(retriever: Retriever, steps: int) -> float:
    """Train the encoder for some steps, and return the final accuracy.

    It is the share of pairs whose own text ranks first.
    """
    pool = retriever.pool
    wants_pixels = retriever.encoder.wants_pixels
    groups = retriever.encoder.groups(SLOW_RATE if wants_pixels else RATE)
    optimiser = torch.optim.Adam(groups, fused=True)
    rows = np.flatnonzero(pool.trained & (pool.positives != NONE).any(1))
    size = min(SMALL_BATCH if wants_pixels else BATCH, len(rows))
    if len(rows) < 2 or len(pool.texts) < 2:
        steps = 0
    start = time.monotonic()
    accuracy = 0.0
    for step in range(steps):
        generator = np.random.default_rng([retriever.seed, step])
        batch = generator.choice(rows, size, replace=False)
        loss, accuracy = _contrast(retriever, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if retriever.average:
        with torch.no_grad():
            retriever.average([weight.data for weight in _list_weights(groups)])
    log.info(
        "retriever: %d steps of warm-up, %.0f %% of pairs rank their own text first, %.1f s",
        steps,
        100 * accuracy,
        time.monotonic() - start,
    )
    return accuracy


def _contrast(retriever: Retriever, rows: Places) -> tuple[Tensor, float]:
    """Return the symmetric cross-entropy of a batch, and the share of pairs that rank first."""
    # The batch's texts, and the column of each row's own.
    ids, columns = np.unique(retriever.pool.positives[rows, 0], return_inverse=True)
    candidates = np.broadcast_to(ids, (len(rows), len(ids)))
    logits = retriever.logits(rows, candidates)
    target = torch.from_numpy(columns).to(logits.device)
    excluded = retriever.pool.excluded(rows, candidates)
    wrong = torch.from_numpy(~excluded).to(logits.device)
    return _contrastive_loss(logits, target, wrong)


def _contrastive_loss(logits: Tensor, target: Tensor, wrong: Tensor) -> tuple[Tensor, float]:
    """Return the symmetric cross-entropy of (B, U) logits of pairs and texts, and the accuracy.

    ``target``, (B,), is the column of each pair's text; ``wrong``, (B, U), are its negatives.
    """
    lowest = torch.finfo(logits.dtype).min
    is_target = functional.one_hot(target, logits.shape[1]).bool()
    to_texts = logits.masked_fill(~(wrong | is_target), lowest)
    # Pairs with the same text are not negatives of each other.
    pairs = torch.arange(len(logits), device=logits.device)
    rivals = wrong[:, target] | (pairs[:, None] == pairs)
    to_pairs = logits[:, target].masked_fill(~rivals, lowest)
    text_loss = functional.cross_entropy(to_texts, target)
    pair_loss = functional.cross_entropy(to_pairs.T, pairs)
    loss = (text_loss + pair_loss) / 2
    is_first = to_texts.argmax(1) == target
    return loss, float(is_first.float().mean())
