"""Communication between training processes, orderly stops, and progress listeners.

Small objects (counts, texts, failures) go over a gloo group of their own: it needs no GPU, does not
wait for one, and may wait for days while one rank prepares data. A single process sends nothing.
Ctrl-C or SIGTERM finishes the step and writes a checkpoint; a second one ends the process at once.
Needs PyTorch.
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
# seconds in which a launcher forwards a Ctrl-C that processes already have from the terminal
PASSED_ON = 2.0


def join_ranks() -> None:
    """Join the process group, where a launcher started several processes."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available())


def leave_ranks() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        _group.cache_clear()
        dist.destroy_process_group()


def count_ranks() -> int:
    """Return the number of training processes."""
    return dist.get_world_size() if dist.is_initialized() else 1


def own_rank() -> int:
    """Return this process' number."""
    return dist.get_rank() if dist.is_initialized() else 0


def gather_ranks(value: T) -> list[T]:
    """Return each process' value, in their order; all must call it."""
    if count_ranks() == 1:
        return [value]
    values: list[Any] = [None] * count_ranks()
    dist.all_gather_object(values, value, group=_group())
    return values


def broadcast(value: T | None) -> T:
    """Return the first process' value; all must call it."""
    if count_ranks() > 1:
        values = [value]
        dist.broadcast_object_list(values, src=0, group=_group())
        value = values[0]
    assert value is not None
    return value


@lru_cache(maxsize=1)
def _group() -> Any:
    return dist.new_group(backend="gloo", timeout=PATIENCE)


@contextmanager
def stoppable(trainer: Any) -> Generator[None]:
    """Let the first signal set ``stopping``, which is checked after each step.

    Outside the main thread, which alone gets signals, do nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    passed_on = PASSED_ON if count_ranks() > 1 else 0.0
    stopped_at = 0.0

    def request_stop(number: int, frame: Any) -> None:
        nonlocal stopped_at
        del number, frame
        if not trainer.stopping:
            trainer.stopping = True
            stopped_at = time.monotonic()
        elif time.monotonic() - stopped_at >= passed_on:
            raise KeyboardInterrupt

    handlers = {number: signal.signal(number, request_stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Watcher(Protocol):
    """Progress listener of the first rank."""

    def begin(self, step: int, steps: int) -> None:
        """Report the initial step and the number of steps."""

    def advance(self, step: int) -> None:
        """Report a finished step."""

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Report means of a split ("train", "held-out").

        Those of training rows are over the rows since the last report.
        """
