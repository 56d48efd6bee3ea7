"""Run a network on its device: crops in, float32 vectors out. Needs PyTorch.

On a GPU the network computes in bfloat16 (autocast: its weights, its normalisations and the result stay float32), on a
CPU in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.preprocess import Preprocess

if TYPE_CHECKING:
    from torch import Tensor, device


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Be a network on its device, with the transform of its images."""

    network: "Callable[[Tensor], Tensor]"
    """From ``(n, 3, h, w)`` to ``(n, dimension)``."""
    preprocess: Preprocess
    device: "device"
    batches: Batches

    def encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return the vectors of crops."""
        return self.batches.run(self._encode, crops)

    def _encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        import torch

        on_gpu = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            images = self.preprocess.numbers(torch.from_numpy(np.stack(crops)).to(self.device))
            return self.network(images).float().cpu().numpy()
