"""Have a model answer a few held-out rows, greedily, to look at beside the references.

Reads rows through the trainer's own; writes ``samples/`` of a run. Needs PyTorch.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tasks.training.chat import make_messages
from tasks.training.collate import Loaded
from tasks.training.report.samples import Sample, write_samples

if TYPE_CHECKING:
    from tasks.training.preference_trainer import PreferenceTrainer

log = logging.getLogger(__name__)
COUNT = 8
LONGEST = 128
"""Tokens of an answer."""


def sample_answers(trainer: "PreferenceTrainer", run: Path) -> None:
    """Write what the model says to the first held-out rows; nothing where its weights are spread over ranks.

    Raises:
        StoreError: a row cannot be read, or the disk refuses.
    """
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        log.info("no samples: the weights are spread over the processes")
        return
    rows: Any = trainer.eval_dataset
    loaded = [item for place in range(min(COUNT, len(rows))) if isinstance(item := rows[place], Loaded)]
    write_samples(run, [_answer(trainer, item) for item in loaded])


def _answer(trainer: "PreferenceTrainer", item: Loaded) -> Sample:
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    processor: Any = trainer.processing_class
    collator: Any = trainer.data_collator
    prompt = collator.chat.render(make_messages(item.example.turns, len(item.images)), add_generation_prompt=True)
    given = processor(text=[prompt], images=[list(item.images)] if item.images else None, return_tensors="pt")
    model.eval()
    with torch.no_grad(), torch.autocast(trainer.args.device.type, _precision(trainer), enabled=_is_mixed(trainer)):
        said = model.generate(**given.to(trainer.args.device), max_new_tokens=LONGEST, do_sample=False, use_cache=True)
    text = processor.batch_decode(said[:, given["input_ids"].shape[1] :], skip_special_tokens=True)[0]
    example = item.example
    return Sample(
        key=example.key,
        prompt="\n".join(turn.text for turn in example.turns),
        images=example.images,
        reference=example.chosen,
        answer=text.strip(),
        rejected=next(iter(example.rejected), ""),
    )


def _precision(trainer: "PreferenceTrainer") -> torch.dtype:
    return torch.float16 if trainer.args.fp16 else torch.bfloat16


def _is_mixed(trainer: "PreferenceTrainer") -> bool:
    return bool(trainer.args.fp16 or trainer.args.bf16)
