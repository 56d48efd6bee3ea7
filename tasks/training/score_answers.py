"""Score answers: the log-probability that a model gives each, from the logits of their tokens alone.

And try on a few rows whether a model gives answers that share a prompt what it gives each by itself.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.collate import Collator, Loaded
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.losses import Scored
from pairwright.tasks.training.pack_answers import Packed, pack_answers, why_not_packed

CHUNK = 2**23
"""Logits held in float32 at once: 32 MiB; on a CPU, more take longer."""
ROWS = 2
TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Nats per square root of an answer's tokens by which two scores may differ (ours): rounding errors of tokens add up as
their root. Models of two layers differ by 3e-6, 7e-4 and 3e-3, deep ones by more; Gemma 3, packed, by 0.5."""


def score_answers(model: Any, packed: Packed) -> Scored:
    """Return the summed log-probabilities of a batch's answers, (B, A); the model may be wrapped (DDP, FSDP, PEFT)."""
    logits, keep = model(**packed.inputs).logits, packed.inputs["logits_to_keep"]
    if logits.ndim == 3:  # it was asked for some, (K, V), and gave all
        if logits.shape[:2] != keep.shape:
            raise TrainingError(f"the model gives logits of shape {tuple(logits.shape)} for tokens {tuple(keep.shape)}")
        logits = logits[keep]
    chosen = target_log_probabilities(logits, packed.places, packed.targets)
    answers = len(packed.owners)
    sums = torch.zeros(answers, device=chosen.device).index_add(0, packed.numbers, chosen)
    place = (packed.owners, packed.columns)
    logps = torch.zeros((packed.examples, packed.width), device=chosen.device).index_put(place, sums)
    return Scored(logps=logps, tokens=count_tokens(packed))


def count_tokens(packed: Packed) -> Tensor:
    """Return (B, A): how many tokens each of a batch's answers has."""
    tokens = torch.zeros(packed.examples, packed.width, dtype=torch.long, device=packed.targets.device)
    tokens[packed.owners, packed.columns] = torch.bincount(packed.numbers, minlength=len(packed.owners))
    return tokens


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
        total = torch.cat([part.float().logsumexp(-1) for part in logits.split(_chunk_rows(logits))])
        ctx.save_for_backward(logits, total, places, targets)
        return logits[places, targets].float() - total[places]

    @staticmethod
    @torch.autograd.function.once_differentiable  # which hides the name of ctx
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return grad x (one-hot - softmax), summed over the tokens of a place."""
        logits, total, places, targets = ctx.saved_tensors
        (grad,) = grads
        weights = torch.zeros_like(total).index_add_(0, places, grad)
        found, size = torch.empty_like(logits), _chunk_rows(logits)
        for begin in range(0, len(logits), size):
            part = (logits[begin : begin + size] - total[begin : begin + size, None]).exp_()  # float32, as total is
            part.mul_(-weights[begin : begin + size, None])
            own = (places >= begin) & (places < begin + len(part))
            where = ((places - begin).clamp(0, len(part) - 1), targets)
            found[begin : begin + size] = part.index_put_(where, grad.where(own, 0), accumulate=True)
        return found, None, None


def _chunk_rows(logits: Tensor) -> int:
    return max(1, CHUNK // logits.shape[-1])


def packs_well(
    model: Any, collator: Collator, items: Iterable[Loaded | Refused], *, dtype: torch.dtype | None = None
) -> str:
    """Return why answers cannot share a prompt, by packed and separate scores of two rows; empty: they agree.

    Costs the forward passes of two rows of several answers; the model, unwrapped, stays as it is. It computes in
    ``dtype``; by default, in its weights'.
    """
    if why := why_not_packed(model):
        return why
    rows = [item for item in items if isinstance(item, Loaded) and item.example.rejected][:ROWS]
    kind = dtype or next(model.parameters()).dtype
    together, alone = (_try(model, replace(collator, apart=apart, late=0), rows, kind) for apart in (False, True))
    if together is None or alone is None:
        return ""
    away = (together.logps - alone.logps).abs() / alone.tokens.clamp(min=1).sqrt()
    worst, allowed = float(away.max()), TOLERANCES.get(kind, TOLERANCES[torch.bfloat16])
    if worst <= allowed:
        return ""
    return (
        f"log-probabilities of answers that share a prompt differ by {worst:.3g} nats per root of their tokens from "
        f"those of answers by themselves; in {str(kind).removeprefix('torch.')}, up to {allowed:g} may be rounding"
    )


def _try(model: Any, collator: Collator, rows: list[Loaded], dtype: torch.dtype) -> Scored | None:
    batch = collator(rows)["batch"]
    if not batch.prompts:
        return None
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            return score_answers(model, pack_answers(batch, model, dtype=dtype))
    finally:
        for module in training:
            module.training = True
