"""Show how a training goes: a bar on a terminal, one plain line per logged step elsewhere; and how it ended."""

import logging
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from pairwright.flows.progress import draws_bars

log = logging.getLogger("pairwright")
SHOWN = ("loss", "margin", "accuracy", "margin/image", "accuracy/image", "nll", "loss/description")
"""Of all metrics, those that are shown while it goes on."""
RATE = "rows per second"
BAR = 12
"""Width of the bar in letters."""


class TrainingLines:
    """Training progress as lines in the log, one per logged step."""

    def __init__(self) -> None:
        self._left = TimeLeft()

    def begin(self, step: int, steps: int) -> None:
        """Say what there is to do."""
        self._left.begin(step, steps)
        log.info("training: %s", f"{steps - step:,} of {steps:,} steps to do" if step else f"{steps:,} steps")

    def advance(self, step: int) -> None:
        """Say nothing: not every step is worth a line."""
        self._left.advance(step)

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Write the line."""
        if split == "train":
            log.info("step %d/%d: %s, %s left", step, self._left.steps, describe(values), self._left)
        else:
            log.info("step %d/%d, %s: %s", step, self._left.steps, split, describe(values))


class TrainingBar:
    """Training progress as a bar on a terminal."""

    def __init__(self, console: Console) -> None:
        """Prepare it; enter ``progress`` to show it."""
        columns = (
            BarColumn(bar_width=BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TextColumn("{task.fields[left]} left"),
        )
        self.progress = Progress(*columns, console=console)
        self._left = TimeLeft()
        self._task: TaskID | None = None

    def begin(self, step: int, steps: int) -> None:
        """Start the bar where the run goes on."""
        self._left.begin(step, steps)
        self._task = self.progress.add_task("training", total=steps, completed=step, values="", left="?")

    def advance(self, step: int) -> None:
        """Move it."""
        self._left.advance(step)
        if self._task is not None:
            self.progress.update(self._task, completed=step, left=str(self._left))

    def logged(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Show the newest means beside the bar; what is measured on held-out rows stays above it."""
        if split != "train":
            self.progress.console.print(f"step {step:,}, {split}: {describe(values)}", highlight=False)
        elif self._task is not None:
            room = self.progress.console.width - BAR - 2 * len(f"{self._left.steps:,}") - len(" / 00 h 00 min left ")
            self.progress.update(self._task, values=describe(values, room=room))


class TimeLeft:
    """Reckon how long the steps that are left will take."""

    def __init__(self) -> None:
        self.steps, self._step, self._began = 0, 0, time.monotonic()
        self._first: int | None = None

    def begin(self, step: int, steps: int) -> None:
        """Start the clock."""
        self.steps, self._step, self._first = steps, step, None

    def advance(self, step: int) -> None:
        """Count a step; the first does not count, for there much is done only once."""
        if self._first is None:
            self._first, self._began = step, time.monotonic()
        self._step = step

    def __str__(self) -> str:
        done = 0 if self._first is None else self._step - self._first
        if not done:
            return "?"
        seconds = int((time.monotonic() - self._began) / done * (self.steps - self._step))
        hours, minutes = seconds // 3600, seconds // 60 % 60
        return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{seconds % 60:02}"


def describe(values: Mapping[str, float], *, room: int | None = None) -> str:
    """Return the metrics that matter in words, the first of them if not all have room."""
    shown = [f"{name} {values[name]:.4g}" for name in SHOWN if name in values]
    if RATE in values:
        shown.insert(min(3, len(shown)), f"{values[RATE]:.3g} rows/s")
    while room is not None and len(shown) > 1 and len(", ".join(shown)) > room:
        shown.pop()
    return ", ".join(shown)


@contextmanager
def watching_training() -> Generator[TrainingLines | TrainingBar]:
    """Give who shows the progress."""
    if not draws_bars():
        yield TrainingLines()
        return
    bar = TrainingBar(Console(stderr=True))
    with bar.progress:
        yield bar
