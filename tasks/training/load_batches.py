"""Load batches ahead of the training, in other processes, in an order determined by the seed.

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
    """Return the characters of each row's texts; ``rows``: ``ExampleRows`` or a subset.

    No images are read.
    """
    whole = getattr(rows, "dataset", rows)
    lengths: list[int] = []
    for row in whole.rows.read_texts():
        prompt = sum(len(turn.text) for turn in row.prompt)
        lengths.append(len(row.chosen) + len(row.rejected) + prompt)
    indices = getattr(rows, "indices", range(len(rows)))
    return [lengths[index] for index in indices]


def make_loader(
    rows: Any, collate: Collate, order: BatchOrder, *, workers: int
) -> "DataLoader[Any]":
    """Return the loader of a rank's batches, ``{"batch": Batch}`` each.

    0 ``workers``: batches are loaded in this process.
    """
    kwargs: dict[str, Any] = {}
    if workers:
        kwargs = {"multiprocessing_context": METHOD, "worker_init_fn": _begin_worker}
    # Without one, each epoch would draw from the model's own generator.
    generator = torch.Generator().manual_seed(order.seed or 0)
    return DataLoader(
        rows,
        batch_sampler=order,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        generator=generator,
        persistent_workers=workers > 0,
        **kwargs,
    )


def count_workers(setting: int | str) -> int:
    """Return how many processes load for each training process."""
    if isinstance(setting, int):
        return setting
    if not torch.cuda.is_available():
        return 0
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    trainings = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST, cores // (2 * trainings)))


def _begin_worker(number: int) -> None:
    """Leave Ctrl-C and the cores to the training."""
    del number
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def find_batch(rows: Any, collate: Collate) -> Batch:
    """Return a batch of the first usable row.

    ``TrainingError``: none of the first thousand is usable.
    """
    refused: list[Refused] = []
    count = min(len(rows), TRIED)
    for row_index in range(count):
        batch = collate([rows[row_index]])["batch"]
        if batch.prompts:
            return batch
        refused += batch.refused
    reasons = count_reasons(refused)
    counts = ", ".join(f"{reason} ({number})" for reason, number in reasons.items())
    example = next((f": {row.key}: {row.detail}" for row in refused if row.detail), "")
    advice = ""
    if TOO_LONG in reasons:
        advice = ". Try a larger model.max_length, or fewer model.max_pixels"
    raise TrainingError(
        f"none of the first {count:,} rows can be trained on: {counts}{example}{advice}"
    )


def with_answers(
    batch: Batch,
    added: Sequence[Sequence[AnswerTokens]],
    longest: int,
) -> Batch:
    """Return a batch with added answers.

    They go behind those of the example's prompt, or one into each empty prompt. Answers that exceed
    ``longest`` tokens with their prompt are left out.
    """
    answers = list(batch.answers)
    for example, new_answers in enumerate(added):
        prompts = [index for index, owner in enumerate(batch.owners) if owner == example]
        size = max((len(batch.prompts[index]) for index in prompts), default=0)
        fitting = [answer for answer in new_answers if size + len(answer.ids) <= longest]
        empty = [index for index in prompts if not answers[index]]
        if empty:
            for index, answer in zip(empty, fitting, strict=False):
                answers[index] = (answer,)
        else:
            first = next(index for index in prompts if _has_chosen(answers[index]))
            answers[first] = (*answers[first], *fitting)
    return replace(batch, answers=answers)


def _has_chosen(answers: Sequence[AnswerTokens]) -> bool:
    return any(answer.column == CHOSEN for answer in answers)
