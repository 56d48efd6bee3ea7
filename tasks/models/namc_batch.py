"""Batch that NAMC learns from; of several processes that train together, each has some of its rows.

Losses are those of the whole batch: what is contrasted is gathered, with gradients, and means are over the places of
all rows. Gradients then add up over the processes, each loss weighed by the process' share of the rows.
"""

from dataclasses import dataclass, fields
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Pairs of images and their descriptions, B of a batch's N; dimension 1 is the first and the second image."""

    features: Tensor
    """``(B, 2, places, features)``."""
    pixels: Tensor
    """``(B, 2, 3, h, w)``, as CLIP prepares them; of what the training does not need, nothing."""
    codes: Tensor
    """``(B, 2, places)``: targets of masked places."""
    tokens: Tensor
    """``(B, 2, L)``: what CLIP reads of each half."""
    words: Tensor
    """``(B, 2, L)``: the number of each token's word, or ``NO_WORD``."""
    texts: Tensor
    """``(N, 2)``: numbers that are equal where halves are the same text, of the whole batch."""
    rows: Tensor
    """``(B,)``: which of the batch's rows these are; other processes have the others."""
    written: Tensor
    """``(B, T)``: the description in the decoder's tokens, start and end included; then padding."""
    numbers: Tensor
    """``(B, T)``: the number of each token's word, those of the second half counted from L on, or ``NO_WORD``."""

    def to(self, device: torch.device) -> "Described":
        """Return it on a device."""
        return Described(**{one.name: getattr(self, one.name).to(device, non_blocking=True) for one in fields(self)})

    def draw(self, like: Tensor) -> Tensor:
        """Return random numbers from 0 to 1 of the shape ``(2 B, n)``, a row's the same in whichever process it is."""
        drawn = torch.rand_like(like.new_empty(2, len(self.texts), like.shape[1]))
        return drawn[:, self.rows].flatten(0, 1)

    def gather(self, own: Tensor) -> Tensor:
        """Return ``(N, ...)`` of ``(B, ...)``: what all processes have of their rows."""
        return self._sum(own.new_zeros(len(self.texts), *own.shape[1:]).index_copy(0, self.rows, own))

    def weigh(self, count: Tensor) -> Tensor:
        """Return the factor of a mean over so many places of these rows, for a mean over those of all rows."""
        return count * len(self.texts) / (self._sum(count) * len(self.rows)).clamp(min=1)

    def _sum(self, value: Tensor) -> Tensor:
        return cast("Tensor", _Sum.apply(value)) if len(self.rows) < len(self.texts) else value


class _Sum(torch.autograd.Function):
    """Sum over the processes; each one's gradient is the sum of what all of them make of it."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        del ctx
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Return the sum of all processes' gradients."""
        return _Sum.forward(ctx, *grads)
