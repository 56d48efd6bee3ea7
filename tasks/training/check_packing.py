"""Try on a few rows whether a model gives answers that share a prompt what it gives each by itself."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from pairwright.tasks.training.collate import Collator, Loaded, Refused
from pairwright.tasks.training.losses.scored import TEXTS, Scored
from pairwright.tasks.training.pack_answers import pack_answers, why_not_packed
from pairwright.tasks.training.score_answers import score_answers

ROWS = 2
TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.03, torch.bfloat16: 0.1}
"""Nats per square root of an answer's tokens by which two scores may differ (ours): rounding errors of tokens add up as
their root. Models of two layers differ by 3e-6, 7e-4 and 3e-3, deep ones by more; Gemma 3, packed, by 0.5."""


def packs_well(
    model: Any, collator: Collator, items: Iterable[Loaded | Refused], *, dtype: torch.dtype | None = None
) -> str:
    """Compare packed with separate scores of the first rows that have several answers; empty: they agree.

    Costs the forward passes of two rows; the model's weights and its mode stay as they are.

    Args:
        model: unwrapped, of one process; with FSDP, before it is cut up.
        collator: packed or not.
        items: some examples, such as those of the first batch.
        dtype: in which the model computes; by default its weights'.

    Returns:
        Why the answers cannot share a prompt, in words.
    """
    if why := why_not_packed(model):
        return why
    rows = [item for item in items if isinstance(item, Loaded) and item.example.rejected][:ROWS]
    kind = dtype or next(model.parameters()).dtype
    together, alone = (_score(model, replace(collator, apart=apart, late=0), rows, kind) for apart in (False, True))
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


def _score(model: Any, collator: Collator, rows: list[Loaded], dtype: torch.dtype) -> Scored | None:
    batch = collator(rows)["batch"]
    if not batch.prompts:
        return None
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            width = max(TEXTS, *(answer.column + 1 for own in batch.answers for answer in own))
            return score_answers(model, pack_answers(batch, model, width=width, dtype=dtype))
    finally:
        for module in training:
            module.training = True
