"""Batches that fit into memory: out of memory halves them for good, and work continues.

Another batch size changes a vector by the rounding of its float32 sums: cosines of 1 - 1e-6 on a
CPU.
"""

import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.devices import count_gpus

if TYPE_CHECKING:
    from torch import Tensor, device

log = logging.getLogger(__name__)
NO_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "out of memory",
    "alloc_failed",
    "unable to find an engine",
    "unable to find a valid cudnn",
)
"""Parts of messages of PyTorch, of cuBLAS, and of cuDNN without room for any algorithm."""
T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
MOST = 256
"""Default size on a GPU; larger ones make no encoder faster."""
ON_CPU = 16
"""Default size on a CPU, whose memory limit is unknown."""


class AdaptiveBatches:
    """Batches of a fixed size, or of one that is halved until it fits."""

    def __init__(self, fixed: int = 0, *, most: int = MOST, on_cpu: int = ON_CPU) -> None:
        """Start with ``fixed`` items; 0: with ``most`` on a GPU, ``on_cpu`` without one."""
        self.size = fixed or (most if count_gpus() else min(on_cpu, most))

    def each(self, work: Callable[[Sequence[T]], Sequence[U]], items: Sequence[T]) -> list[U]:
        """Return the result of ``work`` for each item, in order."""
        results: list[U] = []
        for batch_results in self.run_batches(work, items):
            results.extend(batch_results)
        return results

    def run_batches(self, work: Callable[[Sequence[T]], V], items: Sequence[T]) -> Iterator[V]:
        """Yield the result of ``work`` for each batch; ``ModelError``: not even one item fits."""
        start = 0
        while start < len(items):
            batch = items[start : start + self.size]
            try:
                result = work(batch)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(batch) == 1:
                    raise ModelError(
                        "out of memory with a single image: use a smaller model, "
                        f"or fewer run.workers ({error})"
                    ) from None
                traceback.clear_frames(error.__traceback__)  # its variables keep memory alive
                self._halve(len(batch))
                continue
            yield result
            start += len(batch)

    def _halve(self, count: int) -> None:
        """Halve the size after a batch of ``count`` items ran out of memory."""
        self.size = count // 2
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning("out of memory with %d images at once; going on with %d", count, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Network on its device; on a GPU in bfloat16.

    By autocast: weights, norms and results stay float32.
    """

    network: "Callable[[Tensor], Tensor]"
    """From items ``(n, ...)`` to ``(n, dimension)``."""
    device: "device"
    batches: AdaptiveBatches

    def encode(self, items: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return the vectors of items, in order."""
        return np.concatenate(list(self.batches.run_batches(self._encode, items)))

    def _encode(self, items: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        import torch

        on_gpu = self.device.type == "cuda"
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu)
        with torch.inference_mode(), autocast:
            batch = torch.from_numpy(np.stack(items)).to(self.device)
            return self.network(batch).float().cpu().numpy()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a device or the machine has no memory left."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    message = str(error).lower()
    return any(part in message for part in NO_MEMORY)
