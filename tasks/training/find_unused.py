"""Find out whether a model leaves some of its trained weights unused, as towers do whose last layer nobody reads.

DDP waits for every weight's gradient, unless it is told to look for those that get none, which costs time and warns
where there are none. Needs PyTorch.
"""

from typing import TYPE_CHECKING, Any, cast

import torch

from pairwright.tasks.training.losses.scored import TEXTS
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.score_answers import score_answers
from pairwright.tasks.training.step_batches import find_batch

if TYPE_CHECKING:
    from pairwright.tasks.training.preference_trainer import PreferenceTrainer


def leaves_unused(trainer: "PreferenceTrainer") -> bool:
    """Try it on the first row; costs a pass forwards and backwards, and draws nothing.

    Args:
        trainer: its model on its device, not wrapped yet.

    Raises:
        TrainingError: no row can be trained on.
    """
    model, device = cast("Any", trainer.model), trainer.args.device
    batch = find_batch(trainer.train_dataset, trainer.data_collator)
    dtype = torch.bfloat16 if trainer.args.bf16 else torch.float16 if trainer.args.fp16 else None
    width = max(TEXTS, *(1 + answer.column for own in batch.answers for answer in own))
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        scored = score_answers(model, pack_answers(batch, model, width=width, dtype=dtype))
    scored.logps.sum().backward()
    found = any(weight.requires_grad and weight.grad is None for weight in model.parameters())
    model.zero_grad(set_to_none=True)
    return found
