"""Score answers: the log-probability that a model gives each, from the logits of their tokens alone."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from tasks.training.losses.scored import Scored
from tasks.training.pack_answers import Packed

CHUNK = 1024
"""Tokens whose logits are held in float32 at once: 600 MB for 150,000 words."""


def score_answers(model: Any, packed: Packed) -> Scored:
    """Return the summed log-probabilities of a batch's answers, (B, A).

    Args:
        model: what is called, perhaps wrapped (DDP, FSDP, PEFT).
        packed: its inputs.
    """
    logits = model(**packed.inputs).logits
    chosen = torch.cat(
        [
            checkpoint(_log_probabilities, logits, rows, places, targets, use_reentrant=False)
            for rows, places, targets in zip(
                packed.rows.split(CHUNK), packed.places.split(CHUNK), packed.targets.split(CHUNK), strict=True
            )
        ]
    )
    answers = len(packed.owners)
    sums = torch.zeros(answers, device=chosen.device).index_add(0, packed.numbers, chosen)
    counts = torch.bincount(packed.numbers, minlength=answers)
    place = (packed.owners, packed.columns)
    shape = (packed.examples, packed.width)
    return Scored(
        logps=torch.zeros(shape, device=chosen.device).index_put(place, sums),
        tokens=torch.zeros(shape, dtype=torch.long, device=chosen.device).index_put(place, counts),
    )


def _log_probabilities(logits: Tensor, rows: Tensor, places: Tensor, targets: Tensor) -> Tensor:
    return -torch.nn.functional.cross_entropy(logits[rows, places].float(), targets, reduction="none")
