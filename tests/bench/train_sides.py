"""Run some steps of a training, ours or TRL's, and say how long they take, what they hold, and what
they log.

Each runs in a process of its own (``bench_train``), on the same checkpoint, rows and settings.
Nothing is saved.
"""

import ctypes
import gc
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from tests.fixtures.runs_to_train import write_run

OURS, TRL = "ours, DPO", "TRL, DPO"
MARGINS = ("margin", "rewards/margins")  # what ours and TRL call it


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is run."""

    side: str
    folder: Path  # with ``model``
    rows: list[PreferenceRow]
    config: TrainConfig
    warm: int  # steps that are not timed
    timed: int
    threads: int

    @property
    def steps(self) -> int:
        """Return how many there are."""
        return self.warm + self.timed


@dataclass(slots=True, kw_only=True)
class Measured:
    """What a side gave."""

    seconds: float = 0.0  # of the timed steps
    busy: float = 0.0
    """Their CPU time, all threads, without that of loading processes: what other work on the
    machine changes less."""
    losses: list[float] = field(default_factory=list[float])
    margins: list[float] = field(default_factory=list[float])
    before: float = (
        0.0  # MB held when model, optimiser and data are ready, and the first step begins
    )
    peak: float = 0.0  # MB at the most, from then on


class FinishedError(Exception):
    """Leave a training after its last measured step, before anything is saved."""


class Watch(TrainerCallback):
    """Take times and memory of a training, and end it."""

    def __init__(self, task: Task) -> None:
        self.task, self.measured, self._start = task, Measured(), (0.0, 0.0)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Begin to look at the memory."""
        gc.collect()
        self.measured.before = begin_memory()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take the time."""
        if state.global_step in (self.task.warm, self.task.steps):
            now = time.perf_counter(), time.process_time()
            self.measured.seconds, self.measured.busy = (
                now[0] - self._start[0],
                now[1] - self._start[1],
            )
            self._start = now

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """Keep what is logged; end after the last step."""
        self.measured.losses.append(float(logs["loss"]))
        self.measured.margins += [float(logs[name]) for name in MARGINS if name in logs]
        if state.global_step >= self.task.steps:
            self.measured.peak = peak_memory()
            raise FinishedError


def begin_memory() -> float:
    """Return MB of the GPU's memory, or of resident memory, now; forget what was held before."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    # What was freed, as after our trial of packing, would count as held, and be used again.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
    return _status("VmRSS")


def peak_memory() -> float:
    """Return the most MB that were held since."""
    return (
        torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else _status("VmHWM")
    )


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def run_side(task: Task) -> Measured:
    """Run one side, in this process."""
    from transformers import logging

    logging.disable_progress_bar()
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.config.seed)
    trainer = _trl(task) if task.side == TRL else _ours(task)
    watch = Watch(task)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(watch)
    try:
        trainer.train()
    except FinishedError:
        return watch.measured
    raise RuntimeError("the training ended before its last measured step")


def _ours(task: Task) -> Any:
    """Return the trainer of one of our runs, as ``pairwright train`` makes it once the rows are
    frozen."""
    from pairwright.tasks.training.fit_preferences import make_trainer

    job = write_run(task.folder, task.config, rows=task.rows, name=f"bench-{os.getpid()}")
    job.run.checkpoints.mkdir(parents=True, exist_ok=True)
    return make_trainer(replace(job, start=task.folder / "model"))


def _trl(task: Task) -> Any:
    """Return TRL's trainer, its rows in the order in which ours come."""
    from pairwright.tasks.training.load_batches import BatchOrder
    from tests.bench.train_trl import dpo_trainer, settings_of

    order = BatchOrder(
        len(task.rows), task.config.optimiser.per_device_train_batch_size, task.config.seed
    )
    same = [task.rows[place] for batch in order for place in batch]
    return dpo_trainer(task.folder / "model", same, task.config, **settings_of(task.config))
