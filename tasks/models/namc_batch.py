"""Batch of NAMC's training, possibly one process' part of it.

Losses are those of the whole batch: contrasted vectors are gathered, with gradients, and means are over all rows.
Gradients then add up over the processes, weighted by their shares of the rows.
"""

from dataclasses import dataclass, fields
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """B of a batch's N pairs of images with descriptions; dimension 1 is the first and the second image."""

    features: Tensor  # ``(B, 2, places, features)``
    pixels: Tensor  # ``(B, 2, 3, h, w)``, CLIP's input; empty where not needed
    codes: Tensor  # ``(B, 2, places)``: targets of masked places
    tokens: Tensor  # ``(B, 2, L)``: CLIP's tokens of each half
    words: Tensor  # ``(B, 2, L)``: the number of each token's word, or ``NO_WORD``
    texts: Tensor  # ``(N, 2)``: equal numbers for equal halves, of the whole batch
    rows: Tensor  # ``(B,)``: indices of these rows in the batch
    written: Tensor  # ``(B, T)``: the decoder's tokens, start and end included, padded
    numbers: Tensor  # ``(B, T)``: the number of each token's word, of the second half from L on, or ``NO_WORD``

    def to(self, device: torch.device) -> "Described":
        """Return it on a device."""
        return Described(**{one.name: getattr(self, one.name).to(device, non_blocking=True) for one in fields(self)})

    def draw(self, like: Tensor) -> Tensor:
        """Return random numbers in [0, 1) of shape ``(2 B, n)``, independent of the process a row is in."""
        drawn = torch.rand_like(like.new_empty(2, len(self.texts), like.shape[1]))
        return drawn[:, self.rows].flatten(0, 1)

    def gather(self, own: Tensor) -> Tensor:
        """Return ``(N, ...)`` of ``(B, ...)``: the rows of all processes."""
        return self._sum(own.new_zeros(len(self.texts), *own.shape[1:]).index_copy(0, self.rows, own))

    def weigh(self, count: Tensor) -> Tensor:
        """Return the factor from a mean over ``count`` positions of these rows to the mean over all rows."""
        return count * len(self.texts) / (self._sum(count) * len(self.rows)).clamp(min=1)

    def _sum(self, value: Tensor) -> Tensor:
        return cast("Tensor", _Sum.apply(value)) if len(self.rows) < len(self.texts) else value


class _Sum(torch.autograd.Function):
    """Sum over processes; so are the gradients."""

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
