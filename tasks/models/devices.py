"""Devices of encoders: each GPU with one process of its own, or else the CPU. Needs PyTorch."""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.tasks.store.pool import PLACE

if TYPE_CHECKING:
    from torch import device

DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA, AMD, and Windows' Linux."""


def count_gpus() -> int:
    """Return the number of GPUs; loads PyTorch, which takes seconds, only if there is a driver."""
    if not any(Path(driver).exists() for driver in DRIVERS):
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def count_processes(loads: Callable[[Any], bool], config: Any) -> int | None:
    """Return a stage's processes: one per GPU if its configuration loads weights.

    0 or ``None``: the stage runs in the workers.
    """
    return count_gpus() if loads(config) else None


def choose_device() -> "device":
    """Return this process' device, by the number of the worker or of the launcher's process."""
    import torch

    gpus = count_gpus()
    if not gpus:
        return torch.device("cpu")
    number = os.environ.get(PLACE) or os.environ.get("LOCAL_RANK", "0")
    return torch.device("cuda", int(number) % gpus)


def release(*loaders: Any) -> None:
    """Free the memory of models that cached functions hold."""
    for loader in loaders:
        loader.cache_clear()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()
