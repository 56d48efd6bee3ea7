"""Supervised fine-tuning: the negative log-probability of the chosen texts."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pairwright.schemas.training import SftConfig
from pairwright.tasks.training.losses.rewards import loss_of
from pairwright.tasks.training.losses.scored import CHOSEN, Loss, Scored

if TYPE_CHECKING:
    from torch import Tensor


def sft(policy: Scored, reference: Scored | None, config: SftConfig) -> Loss:
    """Return the mean of -log pi(chosen) over the batch's tokens, or over the means of its examples.

    Metrics are ``nll``, per token in both cases, and ``logp/chosen``. A reference is not looked at.
    """
    del reference
    counts = policy.present[:, CHOSEN]
    logps = policy.logps[:, CHOSEN]
    tokens = policy.tokens[:, CHOSEN]
    # n log p / (tokens of the batch): its mean over the n examples is the mean over tokens.
    per_batch = -logps * counts.sum() / tokens.sum().clamp(min=1)
    per_example = -logps / tokens.clamp(min=1) if config.average_over == "examples" else per_batch
    logged: dict[str, tuple[Tensor, Tensor]] = {"nll": (per_batch, counts), "logp/chosen": (logps, counts)}
    loss = loss_of(per_example, counts, logged)
    return replace(loss, counts={**loss.counts, **({"nll": float(tokens.sum())} if "nll" in loss.counts else {})})
