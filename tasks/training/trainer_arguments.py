"""A run's settings in the Trainer's own words; and what launchers and trackers cannot have, refused before loading.

``accelerate launch`` tells its processes by environment variables. Needs PyTorch and transformers, accelerate where one
of these is set, and the packages of trackers.
"""

import importlib
import importlib.util
import logging
import os
from typing import Any

import torch
from transformers import TrainingArguments

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.runs import SAVING, Run

log = logging.getLogger(__name__)
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""Of full tuning: paper 000's for SFT and ADPO; RLAIF-V's for what paper 004 does not publish."""
LORA_RATE = 1e-4
FSDP, DEEPSPEED = "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; what it logs, measures and keeps is ours."""
    optimiser, output, gpu = config.optimiser, config.output, torch.cuda.is_available()
    schedule = optimiser.lr_scheduler_type
    if "tensorboard" in output.report_to:
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.folder / "tensorboard"))
    if "wandb" in output.report_to:
        os.environ.setdefault("WANDB_DIR", str(run.folder))
        os.environ.setdefault("WANDB_PROJECT", "pairwright")
    arguments: Any = TrainingArguments(
        output_dir=str(run.folder / SAVING),
        run_name=run.folder.name,
        per_device_train_batch_size=optimiser.per_device_train_batch_size,
        per_device_eval_batch_size=optimiser.per_device_train_batch_size,
        gradient_accumulation_steps=optimiser.gradient_accumulation_steps,
        num_train_epochs=optimiser.num_train_epochs,
        max_steps=optimiser.max_steps or -1,
        learning_rate=rate_of(config),
        warmup_steps=optimiser.warmup_ratio,
        lr_scheduler_type="constant_with_warmup" if schedule == "constant" else schedule,
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm,
        seed=config.seed,
        data_seed=config.seed,
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        use_cpu=not gpu,
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if optimiser.gradient_checkpointing else None,
        logging_steps=output.logging_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=output.save_steps,
        eval_strategy="no",
        report_to=list(output.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        # Towers have layers that nobody reads, and a batch without images trains none of them.
        ddp_find_unused_parameters=config.model.train_vision or config.model.differential.enabled,
    )
    if (found := arguments.n_gpu) > 1:  # else the Trainer spreads each batch by threads, which packed answers forbid
        log.warning(
            "one of %d GPUs is used; all are by: torchrun --nproc-per-node %d -m pairwright train ...", found, found
        )
        arguments._n_gpu = 1
    return arguments


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the one that is set, else the objective's own."""
    own = LORA_RATE if config.model.tuning == "lora" else RATES[config.objective]
    return config.optimiser.learning_rate or own


def check_trackers(config: TrainConfig) -> None:
    """Refuse trackers that cannot be told anything."""
    for name in config.output.report_to:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"output.report_to: {name} is not installed here: python -m pip install {name}")
    if "wandb" in config.output.report_to:
        wandb: Any = importlib.import_module("wandb")
        try:
            wandb.login()
        except wandb.errors.Error as error:
            raise ConfigError(
                f"output.report_to: wandb: {error} Log in with: wandb login; or keep it all here with "
                "WANDB_MODE=offline"
            ) from error


def check_launcher(config: TrainConfig) -> None:
    """Check the way in which the processes were started; they have to have joined."""
    fsdp, model = _is_on(FSDP), config.model
    if not (fsdp or _is_on(DEEPSPEED)):
        return
    if fsdp and (version := os.environ.get("FSDP_VERSION", "1")) != "2":
        raise ConfigError(f"accelerate: fsdp_version is {version}; give --fsdp_version 2")
    if fsdp and os.environ.get("FSDP_STATE_DICT_TYPE") == "FULL_STATE_DICT" and model.tuning == "lora":
        raise ConfigError(
            "accelerate: fsdp_state_dict_type is FULL_STATE_DICT, whose checkpoints lack some adapters; give "
            "--fsdp_state_dict_type SHARDED_STATE_DICT"
        )
    beside = model.tuning == "lora" and model.train_vision and model.vision_tuning == "full"
    if model.differential.enabled or beside or config.optimiser.vision_learning_rate:
        raise ConfigError(
            "accelerate: differential perception, weights trained in full beside adapters, and a rate of the tower's "
            "own are not spread over processes by FSDP or DeepSpeed; start it with: torchrun -m pairwright train ..."
        )
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    if PartialState().distributed_type in (DistributedType.MULTI_CPU, DistributedType.NO):
        raise ConfigError(
            f"accelerate: {'use_fsdp' if fsdp else 'use_deepspeed'}: weights are spread over several GPUs, and here "
            "are none, or one process only. Start it without that, on CPUs with: torchrun --nproc-per-node 2 -m "
            "pairwright train ..."
        )


def _is_on(name: str) -> bool:
    return os.environ.get(name, "false").lower() == "true"
