"""Replace tensors by their means over all processes of a training.

One message per number type, over the training's own group (NCCL for tensors on GPUs). Needs PyTorch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from pairwright.tasks.training.ranks import count_ranks

if TYPE_CHECKING:
    from torch import Tensor

    from pairwright.tasks.training.retriever.retriever import Average


def make_average() -> "Average | None":
    """Return what averages; ``None`` where there is one process."""
    return average_over_ranks if count_ranks() > 1 else None


def average_over_ranks(tensors: "Sequence[Tensor]") -> None:
    """Write the means over all processes into the tensors; every process gives as many, of the same shapes."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype is dtype]
        joined = torch.cat([tensor.detach().reshape(-1) for tensor in same])
        dist.all_reduce(joined)
        joined /= count_ranks()
        for tensor, part in zip(same, joined.split([tensor.numel() for tensor in same]), strict=True):
            tensor.detach().copy_(part.view_as(tensor))
