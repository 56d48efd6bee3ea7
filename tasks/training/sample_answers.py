"""Have a model answer a few held-out rows, greedily, to look at beside the references.

Reads rows through the trainer's own; writes ``samples/`` of a run. Needs PyTorch.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tasks.training.answer_rows import answer_rows
from tasks.training.collate import Loaded
from tasks.training.report.samples import Sample, write_samples

if TYPE_CHECKING:
    from tasks.training.preference_trainer import PreferenceTrainer

log = logging.getLogger(__name__)
COUNT = 8


def sample_answers(trainer: "PreferenceTrainer", run: Path) -> None:
    """Write what the model says to the first held-out rows; nothing where its weights are spread over ranks.

    Of these, rows that are not trained on, for one since their prompt is too long, are not asked about, either.

    Raises:
        StoreError: a row cannot be read, or the disk refuses.
    """
    if trainer.is_sharded:
        log.info("no samples: the weights are spread over the processes")
        return
    rows: Any = trainer.eval_dataset
    loaded = [item for place in range(min(COUNT, len(rows))) if isinstance(item := rows[place], Loaded)]
    collate: Any = trainer.data_collator
    write_samples(run, [_answer(trainer, item) for item in loaded if collate([item])["batch"].prompts])


def _answer(trainer: "PreferenceTrainer", item: Loaded) -> Sample:
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()
    with torch.autocast(trainer.args.device.type, _precision(trainer), enabled=_is_mixed(trainer)):
        (answer,) = answer_rows(model, trainer.processing_class, [item])
    example = item.example
    return Sample(
        key=example.key,
        prompt="\n".join(turn.text for turn in example.turns),
        images=example.images,
        reference=example.chosen,
        answer=answer,
        rejected=next(iter(example.rejected), ""),
    )


def _precision(trainer: "PreferenceTrainer") -> torch.dtype:
    return torch.float16 if trainer.args.fp16 else torch.bfloat16


def _is_mixed(trainer: "PreferenceTrainer") -> bool:
    return bool(trainer.args.fp16 or trainer.args.bf16)
