"""Speak with the other processes of a distributed training, about small things: counts, words, who failed.

Over a group of its own (gloo): it needs no GPU, does not wait for one, and may wait for days while one rank prepares
what all need. Where there is one process, nothing is sent. Needs PyTorch.
"""

import os
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
PATIENCE = timedelta(days=7)


def join_ranks() -> None:
    """Begin to speak with the others, where a launcher started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available())


def leave_ranks() -> None:
    """End it in order."""
    if dist.is_initialized():
        _group.cache_clear()
        dist.destroy_process_group()


def count_ranks() -> int:
    """Return how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rank() -> int:
    """Return this process' number."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather(value: T) -> list[T]:
    """Return what each process gives, in their order; all have to call it."""
    if count_ranks() == 1:
        return [value]
    found: list[Any] = [None] * count_ranks()
    dist.all_gather_object(found, value, group=_group())
    return found


def spread(value: T | None) -> T:
    """Return what the first process gives; all have to call it."""
    if count_ranks() > 1:
        found = [value]
        dist.broadcast_object_list(found, src=0, group=_group())
        value = found[0]
    assert value is not None
    return value


@lru_cache(maxsize=1)
def _group() -> Any:
    return dist.new_group(backend="gloo", timeout=PATIENCE)
