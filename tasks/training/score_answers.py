"""Score answers: the log-probability that a model gives each, from the logits of their tokens alone."""

from typing import Any

import torch
from torch import Tensor

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.losses.scored import Scored
from pairwright.tasks.training.pack_answers import Packed

CHUNK = 2**23
"""Logits held in float32 at once: 32 MiB; on a CPU, more take longer."""


def score_answers(model: Any, packed: Packed) -> Scored:
    """Return the summed log-probabilities of a batch's answers, (B, A).

    Args:
        model: what is called, perhaps wrapped (DDP, FSDP, PEFT).
        packed: its inputs.

    Raises:
        TrainingError: the model does not give logits for each token.
    """
    logits = _kept(model(**packed.inputs).logits, packed.inputs["logits_to_keep"])
    chosen = target_log_probabilities(logits, packed.places, packed.targets)
    answers = len(packed.owners)
    sums = torch.zeros(answers, device=chosen.device).index_add(0, packed.numbers, chosen)
    counts = torch.bincount(packed.numbers, minlength=answers)
    place = (packed.owners, packed.columns)
    shape = (packed.examples, packed.width)
    return Scored(
        logps=torch.zeros(shape, device=chosen.device).index_put(place, sums),
        tokens=torch.zeros(shape, dtype=torch.long, device=chosen.device).index_put(place, counts),
    )


def _kept(logits: Tensor, keep: Tensor) -> Tensor:
    """Return (K, V), also from a model that was asked for some logits and gave all."""
    if logits.ndim == 2:
        return logits
    if logits.shape[:2] == keep.shape:
        return logits[keep]
    raise TrainingError(f"the model gives logits of shape {tuple(logits.shape)} for tokens of {tuple(keep.shape)}")


def target_log_probabilities(logits: Tensor, places: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probabilities of some tokens, (N,) float32, differentiable once.

    As ``logits.log_softmax(-1)[places, targets]``, but what is kept for the backward pass is the logits themselves, and
    float32 copies are made of a chunk at a time: half the memory where they are bfloat16.

    Args:
        logits: (K, V).
        places: (N,) of 0 to K - 1; several tokens may share one.
        targets: (N,) of 0 to V - 1.
    """
    return _TargetLogProbabilities.apply(logits, places, targets)  # pyright: ignore[reportReturnType]


class _TargetLogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        total = torch.cat([part.float().logsumexp(-1) for part in logits.split(_rows(logits))])
        ctx.save_for_backward(logits, total, places, targets)
        return logits[places, targets].float() - total[places]

    @staticmethod
    @torch.autograd.function.once_differentiable  # which hides the name of ctx
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return grad x (one-hot - softmax), summed over the tokens of a place."""
        logits, total, places, targets = ctx.saved_tensors
        (grad,) = grads
        weights = torch.zeros_like(total).index_add_(0, places, grad)
        found, size = torch.empty_like(logits), _rows(logits)
        for begin in range(0, len(logits), size):
            part = (logits[begin : begin + size] - total[begin : begin + size, None]).exp_()  # float32, as total is
            part.mul_(-weights[begin : begin + size, None])
            own = (places >= begin) & (places < begin + len(part))
            where = ((places - begin).clamp(0, len(part) - 1), targets)
            found[begin : begin + size] = part.index_put_(where, grad.where(own, 0), accumulate=True)
        return found, None, None


def _rows(logits: Tensor) -> int:
    return max(1, CHUNK // logits.shape[-1])
