"""Say a run's settings in the Trainer's own words, and make its trackers.

Needs PyTorch, transformers and, for trackers, their packages.
"""

import dataclasses
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments

from schemas.errors import ConfigError
from schemas.training import OptimiserConfig, TrainConfig
from tasks.training.runs import Run

log = logging.getLogger(__name__)
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""Of full tuning: paper 000's for SFT and ADPO; RLAIF-V's for what paper 004 does not publish."""
LORA_RATE = 1e-4


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; what it logs, measures and keeps is ours."""
    optimiser, saving, gpu = config.optimiser, config.saving, torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(run.checkpoints),
        per_device_train_batch_size=optimiser.batch,
        per_device_eval_batch_size=optimiser.batch,
        gradient_accumulation_steps=optimiser.accumulate,
        num_train_epochs=optimiser.epochs,
        max_steps=optimiser.steps or -1,
        learning_rate=rate_of(config),
        warmup_steps=optimiser.warmup,
        lr_scheduler_type=_schedule(optimiser),
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.clip,
        seed=optimiser.seed,
        data_seed=optimiser.seed,
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        use_cpu=not gpu,
        logging_steps=saving.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=saving.every,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        # Adapters of the vision tower have nothing to do in a batch without images.
        ddp_find_unused_parameters=config.model.train_vision,
        **_checkpointing(on=optimiser.checkpointing),
    )
    _use_one_gpu(arguments)
    return arguments


def _use_one_gpu(arguments: Any) -> None:
    """Keep the Trainer from spreading each batch over all GPUs by threads, which packed answers do not survive."""
    if (found := arguments.n_gpu) > 1:
        log.warning(
            "one of %d GPUs is used; all are by: torchrun --nproc-per-node %d -m flows.cli train ...", found, found
        )
        arguments._n_gpu = 1


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the one that is set, else the objective's own."""
    own = LORA_RATE if config.model.tuning == "lora" else RATES[config.objective]
    return config.optimiser.learning_rate or own


def _checkpointing(*, on: bool) -> dict[str, Any]:
    """Return the settings of activation checkpointing, by the name that this release of transformers gives it."""
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    name = next(one for one in ("activation_checkpointing", "gradient_checkpointing") if one in known)
    return {name: True, f"{name}_kwargs": {"use_reentrant": False}} if on else {}


def _schedule(optimiser: OptimiserConfig) -> str:
    return {"constant": "constant_with_warmup"}.get(optimiser.schedule, optimiser.schedule)


def check_trackers(config: TrainConfig) -> None:
    """Refuse trackers whose packages are not here.

    Raises:
        ConfigError: names the package.
    """
    for name in config.saving.report_to:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"saving.report_to: {name} is not installed here: python -m pip install {name}")


def make_trackers(run: Run, config: TrainConfig, *, step: int) -> list[TrainerCallback]:
    """Return what tells the trackers; for the first rank.

    Args:
        run: TensorBoard's files go to ``tensorboard/`` below it.
        config: names the trackers.
        step: which the run goes on from; what was told of later ones is replaced where the tracker can.
    """
    check_trackers(config)
    makers: Mapping[str, Callable[[Path, int], TrainerCallback]] = {"tensorboard": _tensorboard, "wandb": _wandb}
    return [makers[name](run.folder, step) for name in config.saving.report_to]


def _tensorboard(folder: Path, step: int) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1))


def _wandb(folder: Path, step: int) -> TrainerCallback:
    del step  # it keeps no step twice by itself
    from transformers.integrations.integration_utils import WandbCallback

    os.environ.setdefault("WANDB_PROJECT", "pairwright")
    os.environ.setdefault("WANDB_DIR", str(folder))
    return WandbCallback()
