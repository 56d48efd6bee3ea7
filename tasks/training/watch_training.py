"""Stop a training in order, and tell somebody how it goes. Needs transformers.

At Ctrl-C or SIGTERM the step in work is finished, a checkpoint is written; a second one ends it at once, with the
checkpoint before.
"""

import signal
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from transformers import TrainerCallback
from typing_extensions import override

from pairwright.tasks.training.ranks import count_ranks
from pairwright.tasks.training.runs import HELD_OUT, TRAIN

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 2.0
"""Seconds in which a launcher passes on a Ctrl-C to processes that have had it from the terminal already."""
MEASURED = "eval_"
"""How trackers know what was measured on held-out rows."""


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


class Telling(TrainerCallback):
    """Callback that tells a watcher what the Trainer tells."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        self.watcher.begin(state.global_step, state.max_steps)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        self.watcher.advance(state.global_step)

    @override
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **words: Any) -> None:
        held_out = {name.removeprefix(MEASURED): logs[name] for name in logs if name.startswith(MEASURED)}
        self.watcher.logged(state.global_step, HELD_OUT if held_out else TRAIN, held_out or logs)
