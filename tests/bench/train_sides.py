"""Run some steps of a training, ours or TRL's, and say how long they take, what they hold, and what they log.

Each side runs in a process of its own (``bench_train``), on the same checkpoint, rows and settings. Nothing is saved.
"""

import gc
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from schemas.training import TrainConfig
from tests.bench.train_rows import read_all

MARGINS = ("margin", "rewards/margins")
"""What ours and TRL call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Say what is run."""

    folder: Path
    """With ``model`` and what ``write_rows`` writes."""
    config: TrainConfig
    warm: int
    """Steps that are not timed."""
    timed: int
    threads: int

    @property
    def steps(self) -> int:
        """Return how many there are."""
        return self.warm + self.timed


@dataclass(slots=True, kw_only=True)
class Measured:
    """Hold what a side gave."""

    seconds: float = 0.0
    """Of the timed steps."""
    busy: float = 0.0
    """Their CPU time, all threads, without that of loading processes: what other work on the machine changes less."""
    losses: list[float] = field(default_factory=list[float])
    margins: list[float] = field(default_factory=list[float])
    before: float = 0.0
    """MB held when model, optimiser and data are ready, and the first step begins."""
    peak: float = 0.0
    """MB at the most, from then on."""


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
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.perf_counter(), time.process_time()
            self.measured.seconds, self.measured.busy = now[0] - self._start[0], now[1] - self._start[1]
            self._start = now

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
        """Keep what is logged; end after the last step."""
        self.measured.losses.append(float(logs["loss"]))
        self.measured.margins += [float(logs[name]) for name in MARGINS if name in logs]
        if state.global_step >= self.task.steps:
            self.measured.peak = peak_memory()
            raise FinishedError


def begin_memory() -> float:
    """Return MB held now, and forget what was held before: the GPU's tensors, or the process's resident memory."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes what is held now
    return _status("VmRSS")


def peak_memory() -> float:
    """Return MB held at the most since ``begin_memory``."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return _status("VmHWM")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def run_ours(task: Task) -> Measured:
    """Run one of our trainings, as ``pairwright train`` does once the rows are frozen."""
    from tasks.store.files import Folder
    from tasks.training.runs import Run
    from tasks.training.train_model import Job, make_trainer

    watch = _begin(task)
    run = Run(task.folder / "runs" / f"bench-{os.getpid()}")
    run.checkpoints.mkdir(parents=True)
    shutil.copy(task.folder / run.rows.name, run.rows)
    job = Job(run=run, config=task.config, dataset=Folder(str(task.folder)), start=task.folder / "model")
    return _watch(make_trainer(job), watch)


def run_trl(task: Task, **settings: Any) -> Measured:
    """Run TRL's DPO trainer with our settings; ``settings`` are more of its own."""
    from tasks.training.load_batches import Order
    from tests.bench.train_trl import dpo_trainer, settings_of

    watch = _begin(task)
    rows = read_all(task.folder)
    order = Order(len(rows), task.config.optimiser.batch, task.config.optimiser.seed)
    same = [rows[place] for batch in order for place in batch]
    trainer = dpo_trainer(task.folder / "model", same, task.config, **settings_of(task.config), **settings)
    return _watch(trainer, watch)


def _begin(task: Task) -> Watch:
    from transformers import logging

    logging.disable_progress_bar()
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.config.optimiser.seed)
    return Watch(task)


def _watch(trainer: Any, watch: Watch) -> Measured:
    trainer.add_callback(watch)
    try:
        trainer.train()
    except FinishedError:
        return watch.measured
    raise RuntimeError("the training ended before its last measured step")
