"""Batches as a training step needs them: sound, with one that stands in where there is none, with answers added.

Needs PyTorch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.collate import TOO_LONG, Answer, Batch
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.load_batches import Fault, Guarded
from pairwright.tasks.training.losses.scored import CHOSEN

T = TypeVar("T")
TRIED = 1000
"""Rows that are looked at for one that can be trained on before a run is given up."""


def find_batch(rows: Any, collate: Any) -> Batch:
    """Return a batch of the first row that can be trained on.

    Raises:
        TrainingError: none of the first thousand can.
    """
    refused: list[Refused] = []
    guarded, count = Guarded(rows), min(len(rows), TRIED)
    for place in range(count):
        item = guarded[place]
        batch = sound(item if isinstance(item, Fault) else collate([item])["batch"])
        if batch.prompts:
            return batch
        refused += batch.refused
    counted = Counter(one.reason for one in refused)
    reasons = ", ".join(f"{reason} ({n})" for reason, n in counted.most_common(3))
    example = next((f": {one.key}: {one.detail}" for one in refused if one.detail), "")
    advice = ". Try a larger model.max_length, or fewer model.max_pixels" if TOO_LONG in counted else ""
    raise TrainingError(f"none of the {count:,} rows that were tried can be trained on: {reasons}{example}{advice}")


def count_tokens(batch: Batch) -> int:
    """Return how many tokens of prompts and answers a batch has."""
    return sum(map(len, batch.prompts)) + sum(len(answer.ids) for own in batch.answers for answer in own)


def sound(found: T | Fault) -> T:
    """Return what was read.

    Raises:
        TrainingError: it could not be read.
    """
    if isinstance(found, Fault):
        raise TrainingError(
            f"{found.message}. The run goes on with the same command when this part is back, byte for byte as it was "
            "(a build with the same settings writes it so); or begin anew under another --name"
        )
    return found


def with_answers(batch: Batch, added: Sequence[Sequence[Answer]], longest: int) -> Batch:
    """Return a batch with more answers: behind those of the example's prompt, or in prompts that wait for one.

    An answer that has more than ``longest`` tokens with its prompt is left out.
    """
    answers = list(batch.answers)
    for example, given in enumerate(added):
        size = max((len(batch.prompts[n]) for n, owner in enumerate(batch.owners) if owner == example), default=0)
        own = [answer for answer in given if size + len(answer.ids) <= longest]
        places = [n for n, owner in enumerate(batch.owners) if owner == example]
        waiting = [n for n in places if not answers[n]]
        if waiting:
            for place, answer in zip(waiting, own, strict=False):
                answers[place] = (answer,)
        else:
            first = next(n for n in places if any(answer.column == CHOSEN for answer in answers[n]))
            answers[first] = (*answers[first], *own)
    return replace(batch, answers=answers)
