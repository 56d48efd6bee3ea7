"""Stop a training in order, and tell somebody how it goes.

At Ctrl-C or SIGTERM the step in work is finished, a checkpoint is written; a second one ends it at once, with the
checkpoint before.
"""

import signal
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from pairwright.tasks.training.ranks import count_ranks

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 2.0
"""Seconds in which a launcher passes on a Ctrl-C to processes that have had it from the terminal already."""


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
