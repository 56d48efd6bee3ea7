"""Load batches ahead of the training, in processes beside it, in an order that follows from the seed.

The same seed, epoch and step give the same rows, so that a run can resume. Processes are forked
from a server process (``forkserver``, where available), not from the training, whose threads may
hold locks; later epochs reuse them.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from transformers.trainer_pt_utils import get_length_grouped_indices

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.collate import TOO_LONG, AnswerTokens, Batch, Collate
from pairwright.tasks.training.freeze_rows import Refused, count_reasons
from pairwright.tasks.training.losses import CHOSEN

MOST = 4  # default maximum of processes per GPU
METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
TRIED = 1000  # rows tried before a run is given up for lack of a usable one


@dataclass
class BatchOrder:
    """Row positions of one rank, batch by batch."""

    rows: int
    batch: int  # rows per rank and step
    seed: int | None  # ``None``: the table's order
    ranks: int = 1
    rank: int = 0
    epoch: int = 0
    lengths: Sequence[int] = ()  # of the rows' texts, where batches group rows of similar length

    def __len__(self) -> int:
        return -(-self.rows // (self.batch * self.ranks))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield each step's positions; an incomplete last step may leave a rank without rows."""
        order = np.arange(self.rows)
        if self.seed is not None:
            np.random.default_rng([self.seed, self.epoch]).shuffle(order)
        step = self.batch * self.ranks
        if self.lengths:  # sorts the shuffled rows within groups of steps
            lengths = [self.lengths[n] for n in order.tolist()]
            order = order[get_length_grouped_indices(lengths, step, generator=torch.Generator())]
        for start in range(0, self.rows, step):
            yield np.array_split(order[start : start + step], self.ranks)[self.rank].tolist()


def text_lengths(rows: Any) -> list[int]:
    """Return the characters of each row's texts, of ``ExampleRows`` or a subset; reads no images."""
    whole = getattr(rows, "dataset", rows)
    texts = [
        [row.chosen, row.rejected, *(turn.text for turn in row.prompt)]
        for row in whole.rows.read_texts()
    ]
    return [sum(map(len, texts[place])) for place in getattr(rows, "indices", range(len(rows)))]


def make_loader(
    rows: Any, collate: Collate, order: BatchOrder, *, workers: int
) -> "DataLoader[Any]":
    """Return the loader of a rank's batches, ``{"batch": Batch}`` each; 0 ``workers``: in this process."""
    words: dict[str, Any] = (
        {"multiprocessing_context": METHOD, "worker_init_fn": _begin_worker} if workers else {}
    )
    return DataLoader(
        rows,
        batch_sampler=order,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator().manual_seed(
            order.seed or 0
        ),  # else each epoch would draw from the model's own
        persistent_workers=workers > 0,
        **words,
    )


def count_workers(wanted: int | str) -> int:
    """Return how many processes load for each training process."""
    if isinstance(wanted, int):
        return wanted
    if not torch.cuda.is_available():
        return 0
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min(MOST, cores // (2 * int(os.environ.get("LOCAL_WORLD_SIZE", "1")))))


def _begin_worker(number: int) -> None:
    """Leave Ctrl-C and the cores to the training."""
    del number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def find_batch(rows: Any, collate: Collate) -> Batch:
    """Return a batch of the first usable row; ``TrainingError`` where none of the first thousand is."""
    refused, count = list[Refused](), min(len(rows), TRIED)
    for place in range(count):
        batch = collate([rows[place]])["batch"]
        if batch.prompts:
            return batch
        refused += batch.refused
    reasons = count_reasons(refused)
    counted = ", ".join(f"{reason} ({n})" for reason, n in reasons.items())
    example = next((f": {one.key}: {one.detail}" for one in refused if one.detail), "")
    advice = (
        ". Try a larger model.max_length, or fewer model.max_pixels" if TOO_LONG in reasons else ""
    )
    raise TrainingError(
        f"none of the first {count:,} rows can be trained on: {counted}{example}{advice}"
    )


def with_answers(batch: Batch, added: Sequence[Sequence[AnswerTokens]], longest: int) -> Batch:
    """Return a batch with added answers: behind those of the example's prompt, or one per empty prompt.

    Answers that exceed ``longest`` tokens with their prompt are left out.
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
