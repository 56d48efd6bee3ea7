"""What the policy is compared with: the model as the run found it.

Three ways to have its log-probabilities: the adapters switched off, a frozen copy, or a table made before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tasks.training.losses.scored import Scored
from tasks.training.pack_answers import Packed
from tasks.training.score_answers import score_answers


@dataclass(frozen=True, slots=True)
class Asked:
    """Be a batch that is to be scored."""

    model: Any
    """The policy, perhaps wrapped (DDP, FSDP)."""
    packed: Packed
    keys: Sequence[str]
    """(B) the rows' keys."""


class Reference(Protocol):
    """Give the log-probabilities of the model that the run began with."""

    def score(self, asked: Asked) -> Scored:
        """Return what it gives the batch's answers, (B, A); without gradients."""
        ...


@dataclass(frozen=True)
class Adapters:
    """Be the policy with its adapters switched off."""

    def score(self, asked: Asked) -> Scored:
        """Run the model once more, without adapters."""
        inner = asked.model
        while not hasattr(inner, "disable_adapter"):  # DDP and its like
            inner = inner.module
        with torch.no_grad(), inner.disable_adapter():
            return score_answers(asked.model, asked.packed)


@dataclass(frozen=True)
class Copy:
    """Be a second model with the weights of the start."""

    model: Any

    def score(self, asked: Asked) -> Scored:
        """Run the second model."""
        with torch.no_grad():
            return score_answers(self.model, asked.packed)


@dataclass(frozen=True)
class Table:
    """Be log-probabilities that were computed before, by row key: one per column."""

    logps: Mapping[str, tuple[float, ...]]

    def score(self, asked: Asked) -> Scored:
        """Look the batch's rows up."""
        packed, device = asked.packed, asked.packed.targets.device
        found = torch.zeros(packed.examples, packed.width, device=device)
        tokens = torch.zeros(packed.examples, packed.width, dtype=torch.long, device=device)
        counts = torch.bincount(packed.numbers, minlength=len(packed.owners))
        tokens[packed.owners, packed.columns] = counts
        for place, key in enumerate(asked.keys):
            stored = torch.tensor(self.logps[key][: packed.width], device=device)
            found[place, : len(stored)] = stored
        return Scored(logps=found.where(tokens > 0, 0.0), tokens=tokens)
