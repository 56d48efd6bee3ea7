"""Run a network on its device: arrays in, float32 vectors out. Needs PyTorch.

On a GPU the network computes in bfloat16 (autocast: its weights, its normalisations and the result stay float32), on a
CPU in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.batches import Batches

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A network on its device."""

    network: "Callable[[Tensor], Tensor]"
    """From items in one tensor, ``(n, ...)``, to ``(n, dimension)``."""
    device: "device"
    batches: Batches

    def encode(self, items: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return the vectors of items."""
        return self.batches.run(self._encode, items)

    def _encode(self, items: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        import torch

        on_gpu = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            return self.network(torch.from_numpy(np.stack(items)).to(self.device)).float().cpu().numpy()
