"""Tell somebody how a training goes: a bar, a log, a server. Needs transformers."""

from collections.abc import Mapping
from typing import Any, Protocol

from transformers import TrainerCallback
from typing_extensions import override

from pairwright.tasks.training.metrics import HELD_OUT, TRAIN

MEASURED = "eval_"
"""How trackers know what was measured on held-out rows."""


class Watcher(Protocol):
    """Be told what happens; only the first rank's is."""

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
    """Tell a watcher what the Trainer tells."""

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
