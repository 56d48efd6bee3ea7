"""Have a model answer held-out rows, greedily: a few to look at beside the references, or all to be scored.

Reads rows through the trainer's own; writes ``samples/`` and, where it is set, ``answers/`` of a run. Needs PyTorch.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from pairwright.tasks.models.batches import Batches
from pairwright.tasks.training.answer_rows import MOST_TOKENS, Said, say_answers
from pairwright.tasks.training.collate import Loaded
from pairwright.tasks.training.examples import Example
from pairwright.tasks.training.ranks import count_ranks
from pairwright.tasks.training.report.samples import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import Run
from pairwright.tasks.training.step_batches import sound

if TYPE_CHECKING:
    from pairwright.tasks.training.preference_trainer import PreferenceTrainer

log = logging.getLogger(__name__)
COUNT = 8
ROOM = 2
"""How many times as long as the longest reference an answer may be."""
LONGEST = 2_048
"""Tokens of any answer, whatever the references are; longer ones are cut, which is said."""


def sample_answers(trainer: "PreferenceTrainer", run: Path) -> None:
    """Write what the model says to held-out rows; nothing where its weights are spread over ranks.

    Of these, rows that are not trained on, for one since their prompt is too long, are not asked about, either.

    Args:
        trainer: at the end of its training.
        run: the run's folder.

    Raises:
        StoreError: a row cannot be read, or the disk refuses.
        KeyboardInterrupt: it is to stop.
    """
    if trainer.is_sharded:
        log.info("no samples: the weights are spread over the processes")
        return
    rows, every = len(_rows(trainer)), trainer.setting.config.output.write_answers
    lengths = {place: _count_tokens(trainer, place) for place in range(rows if every else min(COUNT, rows))}
    places = [place for place, length in lengths.items() if length]
    most, samples = max(MOST_TOKENS, min(ROOM * max(lengths.values(), default=0), LONGEST)), list[Sample]()
    answers: list[tuple[str, str, str]] = []
    for place, example, said in _answer(trainer, places, most):
        answers.append((example.key, said.text, example.chosen))
        if place < COUNT:
            samples.append(_sample(example, said))
    write_samples(run, samples)
    if every:
        write_answers(Run(run).answers, answers)


def _rows(trainer: "PreferenceTrainer") -> Any:
    return trainer.eval_dataset


def _count_tokens(trainer: "PreferenceTrainer", place: int) -> int:
    """Return how long a row's reference is; 0: it is not trained on."""
    item, collate = _rows(trainer)[place], cast("Any", trainer.data_collator)
    answers = sound(collate([item])["batch"]).answers if isinstance(item, Loaded) else []
    return max((len(answer.ids) for own in answers for answer in own), default=0)


def _answer(trainer: "PreferenceTrainer", places: list[int], most: int) -> Iterator[tuple[int, Example, Said]]:
    """Yield what the model says to rows, some at once; fewer where the memory does not suffice."""
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()

    def answer(some: Sequence[int]) -> list[tuple[int, Example, Said]]:
        if trainer.stopping and count_ranks() == 1:
            raise KeyboardInterrupt
        items = [_rows(trainer)[place] for place in some]
        with torch.autocast(trainer.args.device.type, _precision(trainer), enabled=_is_mixed(trainer)):
            found = say_answers(model, trainer.processing_class, items, most_tokens=most)
        return [(place, item.example, said) for place, item, said in zip(some, items, found, strict=True)]

    for answers in Batches(fixed=trainer.setting.config.optimiser.per_device_train_batch_size).pieces(answer, places):
        yield from answers


def _sample(example: Example, said: Said) -> Sample:
    return Sample(
        key=example.key,
        prompt="\n".join(turn.text for turn in example.turns),
        images=example.images,
        reference=example.chosen,
        answer=said.text,
        rejected=next(iter(example.rejected), ""),
        cut=said.cut,
    )


def _precision(trainer: "PreferenceTrainer") -> torch.dtype:
    return torch.float16 if trainer.args.fp16 else torch.bfloat16


def _is_mixed(trainer: "PreferenceTrainer") -> bool:
    return bool(trainer.args.fp16 or trainer.args.bf16)
