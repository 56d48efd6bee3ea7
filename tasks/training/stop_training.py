"""End a training in order at Ctrl-C or SIGTERM: the step in work is finished, a checkpoint is written.

A second one ends it at once, with the checkpoint before. Needs transformers.
"""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from transformers import TrainerCallback
from typing_extensions import override

from pairwright.tasks.training.ranks import count_ranks

if TYPE_CHECKING:
    from pairwright.tasks.training.preference_trainer import PreferenceTrainer

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PASSED_ON = 2.0
"""Seconds in which a launcher passes on a Ctrl-C to processes that have had it from the terminal already."""


class Stoppable(Protocol):
    """Look after each step whether it is to stop."""

    stopping: bool


class Stopping(TrainerCallback):
    """Have the Trainer save and end after a step, where it is to stop."""

    def __init__(self, trainer: "PreferenceTrainer") -> None:
        self.trainer = trainer

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **words: Any) -> None:
        if self.trainer.is_stopping:
            control.should_save = control.should_training_stop = True


@contextmanager
def stoppable(trainer: "Stoppable") -> Generator[None]:
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
