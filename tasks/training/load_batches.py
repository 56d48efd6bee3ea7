"""Load batches ahead of a training, in processes beside it, in an order that only the seed decides.

The same seed, epoch and step give the same rows, which is how a run goes on. Processes are not forked off the training,
whose threads may hold locks, but off a server process that has read the libraries already (``forkserver``), where there
is one, so that those of a later epoch start at once.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Subset

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.texts.conversations import turns_of
from pairwright.tasks.training.collate import TOO_LONG, Answer, Batch, Collate
from pairwright.tasks.training.freeze_rows import Refused, count_reasons
from pairwright.tasks.training.losses import CHOSEN

LIBRARIES = ("torch", "transformers", "pyarrow", "pairwright.tasks.training.load_batches")
"""What the server process reads before it forks, beside what the model's processor is made of."""
MOST = 4
"""Processes per GPU, where their number is not set."""
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
GROUPED = 50
"""Steps among whose rows those of one length are brought together, as in transformers."""
TRIED = 1000
"""Rows that are looked at for one that can be trained on before a run is given up."""


@dataclass
class Order:
    """Places of the rows, batch by batch, of one rank."""

    rows: int
    batch: int
    """Rows per rank and step."""
    seed: int | None
    """``None``: in the table's order."""
    ranks: int = 1
    rank: int = 0
    epoch: int = 0
    lengths: NDArray[np.int64] | None = None
    """Of the rows, where a step is to have rows of about one length."""

    def __len__(self) -> int:
        return -(-self.rows // (self.batch * self.ranks))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each step's places; empty where an incomplete last step has fewer rows than there are ranks."""
        order = np.arange(self.rows)
        if self.seed is not None:
            np.random.default_rng([self.seed, self.epoch]).shuffle(order)
        step = self.batch * self.ranks
        if self.lengths is not None and self.seed is not None:
            for start in range(0, self.rows, step * GROUPED):  # some steps' rows are sorted, then all steps shuffled
                some = order[start : start + step * GROUPED]
                some[:] = some[np.argsort(-self.lengths[some], kind="stable")]
            whole = order[: self.rows - self.rows % step].reshape(-1, step)
            np.random.default_rng([self.seed, self.epoch, step]).shuffle(whole)
        for start in range(0, self.rows, step):
            yield np.array_split(order[start : start + step], self.ranks)[self.rank].tolist()


def text_lengths(rows: Any) -> NDArray[np.int64]:
    """Return the characters of each row's texts, of ``ExampleRows`` or some of them; images are not read."""
    if isinstance(rows, Subset):
        return text_lengths(rows.dataset)[list(rows.indices)]
    texts = (len(row.rejected) + sum(len(turn.text) for turn in turns_of(row)) for row in rows.rows.read_texts())
    return np.fromiter(texts, dtype=np.int64, count=len(rows))


def make_loader(rows: Any, collate: Collate, order: Order, *, workers: int) -> "DataLoader[Any]":
    """Return the loader of a rank's batches, ``{"batch": Batch}`` each, of a map-style dataset of ``Loaded | Refused``.

    Without ``workers`` it happens in this process, between steps.
    """
    words: dict[str, Any] = {"multiprocessing_context": METHOD, "worker_init_fn": _begin_worker} if workers else {}
    return DataLoader(
        rows,
        batch_sampler=order,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(order.seed or 0),  # else each epoch would draw from the model's own
        persistent_workers=workers > 0,
        **words,
    )


def count_workers(wanted: int | str) -> int:
    """Return how many processes load beside each training process."""
    if isinstance(wanted, int):
        return wanted
    if not torch.cuda.is_available():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST, cores // (2 * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))


def start_server(processor: Any) -> None:
    """Let the server process read the libraries while the model is loaded.

    Of a processor, too: else each process would read 2,000 modules of its own (torchvision, scipy), for each measuring.
    """
    if METHOD == "forkserver":
        from multiprocessing import forkserver

        parts = [processor, *(getattr(processor, name, None) for name in ("image_processor", "tokenizer"))]
        forkserver.set_forkserver_preload([*LIBRARIES, *sorted({type(part).__module__ for part in parts if part})])
        forkserver.ensure_running()


def _begin_worker(number: int) -> None:
    """Leave Ctrl-C to the training, and the cores too."""
    del number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def find_batch(rows: Any, collate: Collate) -> Batch:
    """Return a batch of the first row that can be trained on; ``TrainingError``: none of the first thousand can."""
    refused, count = list[Refused](), min(len(rows), TRIED)
    for place in range(count):
        batch = collate([rows[place]])["batch"]
        if batch.prompts:
            return batch
        refused += batch.refused
    reasons = count_reasons(refused)
    counted = ", ".join(f"{reason} ({n})" for reason, n in reasons.items())
    example = next((f": {one.key}: {one.detail}" for one in refused if one.detail), "")
    advice = ". Try a larger model.max_length, or fewer model.max_pixels" if TOO_LONG in reasons else ""
    raise TrainingError(f"none of the {count:,} rows that were tried can be trained on: {counted}{example}{advice}")


def with_answers(batch: Batch, added: Sequence[Sequence[Answer]], longest: int) -> Batch:
    """Return a batch with more answers: behind those of the example's prompt, or in prompts that wait for one.

    An answer that has more than ``longest`` tokens with its prompt is left out.
    """
    answers = list(batch.answers)
    for example, given in enumerate(added):
        places = [n for n, owner in enumerate(batch.owners) if owner == example]
        size = max((len(batch.prompts[n]) for n in places), default=0)
        own = [answer for answer in given if size + len(answer.ids) <= longest]
        if waiting := [n for n in places if not answers[n]]:
            for place, answer in zip(waiting, own, strict=False):
                answers[place] = (answer,)
        else:
            first = next(n for n in places if any(answer.column == CHOSEN for answer in answers[n]))
            answers[first] = (*answers[first], *own)
    return replace(batch, answers=answers)
