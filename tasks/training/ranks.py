"""Processes of a training: what they tell each other, how they stop in order, who watches.

They speak about small things (counts, words, who failed) over a group of its own (gloo): it needs no GPU, does not wait
for one, and may wait for days while one rank prepares what all need. Where there is one process, nothing is sent. At
Ctrl-C or SIGTERM the step in work is finished, a checkpoint is written; a second one ends it at once, with the
checkpoint before. Needs PyTorch.
"""

import os
import signal
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
PATIENCE = timedelta(days=7)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 2.0
"""Seconds in which a launcher passes on a Ctrl-C to processes that have had it from the terminal already."""


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


def add_gradients(model: torch.nn.Module) -> None:
    """Give each process the sum of what all of them found, weight by weight."""
    if count_ranks() > 1:
        for weight in model.parameters():
            if weight.grad is not None:
                dist.all_reduce(weight.grad)


@lru_cache(maxsize=1)
def _group() -> Any:
    return dist.new_group(backend="gloo", timeout=PATIENCE)


class Stoppable(Protocol):
    """Trainer that looks after each step whether it is to stop."""

    stopping: bool


@contextmanager
def stoppable(trainer: Stoppable) -> Generator[None]:
    """Let the first signal stop the training in order; in a thread that gets no signals, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    passed_on = PASSED_ON if count_ranks() > 1 else 0.0
    began = 0.0

    def stop(number: int, frame: Any) -> None:
        nonlocal began
        del number, frame
        if trainer.stopping and time.monotonic() - began >= passed_on:
            raise KeyboardInterrupt
        if not trainer.stopping:
            trainer.stopping, began = True, time.monotonic()

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watcher(Protocol):
    """Listener to what happens; only the first rank has one."""

    def begin(self, step: int, steps: int) -> None:
        """Hear from which step it goes on, and how many there are."""
        ...

    def advance(self, step: int) -> None:
        """Hear that a step is done."""
        ...

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Hear means over the rows since the last time ("train"), or over the held-out rows ("held-out")."""
        ...
