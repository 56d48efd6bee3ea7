"""Run some steps of a training, ours or TRL's, and say how long they take, what they hold, and what they log.

Each runs in a process of its own (``bench_train``), on the same checkpoint, rows and settings. Nothing is saved.
"""

import ctypes
import gc
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback

from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.training.retriever.adversary import make_adversary
from pairwright.tasks.training.retriever.material import Features, Material
from pairwright.tasks.training.retriever.pool import Entry, make_pool
from tests.bench.train_rows import make_texts, read_all

OURS, ADPO, TRL = "ours, DPO", "ours, ADPO", "TRL, DPO"
POOL, NUMBERS = 5000, 768
"""Texts beside the rows' that ADPO chooses from, and the length of their random vectors, as CLIP's."""
MARGINS = ("margin", "rewards/margins")
"""What ours and TRL call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is run."""

    side: str
    folder: Path
    """With ``model`` and what ``write_rows`` writes."""
    answer: tuple[int, int]
    """Words of an answer, from and up to."""
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
    """What a side gave."""

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
    return torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else _status("VmHWM")


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
    """Return the trainer of one of our runs, as ``pairwright train`` makes it once the rows are frozen."""
    from pairwright.tasks.store.files import Folder
    from pairwright.tasks.training.losses import needs_of
    from pairwright.tasks.training.runs import Run
    from pairwright.tasks.training.train_model import Job, make_trainer

    run = Run(task.folder / "runs" / f"bench-{os.getpid()}")
    run.checkpoints.mkdir(parents=True)
    shutil.copy(task.folder / run.rows.name, run.rows)
    job = Job(run=run, config=task.config, dataset=Folder(str(task.folder)), start=task.folder / "model")
    trainer = make_trainer(job)
    if task.side == ADPO:
        config = task.config.model_copy(update={"objective": "adpo"})
        trainer.train_dataset = replace(cast("Any", trainer.train_dataset), needs=needs_of(config))
        give_adversary(trainer, read_all(task.folder), config, make_texts(POOL, answer=task.answer))
    return trainer


def _trl(task: Task) -> Any:
    """Return TRL's trainer, its rows in the order in which ours come."""
    from pairwright.tasks.training.load_batches import Order
    from tests.bench.train_trl import dpo_trainer, settings_of

    rows, config = read_all(task.folder), task.config
    order = Order(len(rows), config.optimiser.per_device_train_batch_size, config.seed)
    same = [rows[place] for batch in order for place in batch]
    return dpo_trainer(task.folder / "model", same, config, **settings_of(config))


def give_adversary(trainer: Any, rows: list[PreferenceRow], config: TrainConfig, texts: list[str]) -> None:
    """Make a DPO training one of ADPO: its loss, and negatives that a learning retriever takes from rows and texts."""
    others = [_entry(f"other {place}", text) for place, text in enumerate(texts)]
    entries = (*(_entry(row.key, row.chosen) for row in rows), *others)
    pool = make_pool(entries)
    rng = np.random.default_rng(0)
    shown = np.arange(2 * len(entries)).reshape(-1, 2)
    features = Features(
        images=(_vectors(2 * len(entries), rng),),
        shown=shown,
        texts=_vectors(len(pool.texts), rng),
        of_texts=np.arange(len(pool.texts)),
        made_by="chance",
    )
    places = {entry.key: place for place, entry in enumerate(entries)}
    material = Material(entries=entries, pool=pool, places=places, features=features, truth=None)

    def tokenize(text: str) -> tuple[int, ...]:
        return trainer.data_collator.answers([text], 0)[0].ids

    adversary = make_adversary(material, config, tokenize=tokenize, device=choose_device())
    trainer.setting = replace(trainer.setting, config=config, adversary=adversary)


def _entry(key: str, text: str) -> Entry:
    return Entry(key=key, pair=key, chosen=text, images=(f"{key} a", f"{key} b"), in_pool=True, no_change=False)


def _vectors(count: int, rng: np.random.Generator) -> Any:
    found = rng.standard_normal((count, NUMBERS), dtype=np.float32)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)
