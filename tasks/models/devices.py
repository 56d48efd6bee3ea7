"""Say which devices encoders run on: each GPU, with one process of its own, or else the CPU. Needs PyTorch."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.tasks.store.pool import PLACE

if TYPE_CHECKING:
    from torch import device

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What NVIDIA's and AMD's drivers, and that of Windows' Linux, leave on a machine that has a GPU."""


def count_gpus() -> int:
    """Return how many GPUs there are; PyTorch is asked (and takes seconds to load) only where there is a driver."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def count_processes(loads: Callable[[Any], bool], config: Any) -> int | None:
    """Return how many processes run a stage whose configuration loads weights: one per GPU, or the workers (0)."""
    return count_gpus() if loads(config) else None


def choose_device() -> "device":
    """Return this process' device: the number of the worker, or of the launcher's process, says which GPU."""
    import torch

    gpus, place = count_gpus(), os.environ.get(PLACE) or os.environ.get("LOCAL_RANK", "0")
    return torch.device("cuda", int(place) % gpus) if gpus else torch.device("cpu")
