"""Say a run's settings in the Trainer's own words, and make its trackers.

Needs PyTorch, transformers and, for trackers, their packages.
"""

import dataclasses
import importlib
import importlib.util
import logging
import os
import secrets
import textwrap
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import TrainerCallback, TrainingArguments

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import OptimiserConfig, TrainConfig
from pairwright.tasks.training.runs import Run

log = logging.getLogger(__name__)
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""Of full tuning: paper 000's for SFT and ADPO; RLAIF-V's for what paper 004 does not publish."""
LORA_RATE = 1e-4


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; what it logs, measures and keeps is ours."""
    optimiser, output, gpu = config.optimiser, config.output, torch.cuda.is_available()
    arguments = TrainingArguments(
        output_dir=str(run.checkpoints),
        per_device_train_batch_size=optimiser.per_device_train_batch_size,
        per_device_eval_batch_size=optimiser.per_device_train_batch_size,
        gradient_accumulation_steps=optimiser.gradient_accumulation_steps,
        num_train_epochs=optimiser.num_train_epochs,
        max_steps=optimiser.max_steps or -1,
        learning_rate=rate_of(config),
        warmup_steps=optimiser.warmup_ratio,
        lr_scheduler_type=_schedule(optimiser),
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm,
        seed=config.seed,
        data_seed=config.seed,
        bf16=dtype is torch.bfloat16,
        fp16=dtype is torch.float16,
        use_cpu=not gpu,
        logging_steps=output.logging_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=output.save_steps,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        ddp_find_unused_parameters=False,  # unless it is found out that some are
        **_checkpointing(on=optimiser.gradient_checkpointing),
    )
    _use_one_gpu(arguments)
    return arguments


def _use_one_gpu(arguments: Any) -> None:
    """Keep the Trainer from spreading each batch over all GPUs by threads, which packed answers do not survive."""
    if (found := arguments.n_gpu) > 1:
        log.warning(
            "one of %d GPUs is used; all are by: torchrun --nproc-per-node %d -m pairwright train ...", found, found
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
    return {"constant": "constant_with_warmup"}.get(optimiser.lr_scheduler_type, optimiser.lr_scheduler_type)


def check_trackers(config: TrainConfig) -> None:
    """Refuse trackers that cannot be told anything.

    Raises:
        ConfigError: names the package that is not here, or says that nobody is logged in.
    """
    for name in config.output.report_to:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"output.report_to: {name} is not installed here: python -m pip install {name}")
    if "wandb" in config.output.report_to:
        with _tracking() as wandb:
            wandb.login()


def make_trackers(run: Run, config: TrainConfig, *, step: int) -> list[TrainerCallback]:
    """Return what tells the trackers, the run's settings told; for the first rank.

    Args:
        run: the files of TensorBoard and of W&B go below it.
        config: names the trackers.
        step: which the run goes on from; what was told of later ones is replaced where the tracker can.

    Raises:
        ConfigError: a tracker's package is not here, or it cannot be reached.
    """
    check_trackers(config)
    makers: Mapping[str, Callable[[Path, TrainConfig, int], TrainerCallback]] = {
        "tensorboard": _tensorboard,
        "wandb": _wandb,
    }
    return [makers[name](run.folder, config, step) for name in config.output.report_to]


def _tensorboard(folder: Path, config: TrainConfig, step: int) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    where = str(folder / "tensorboard")
    writer = SummaryWriter(where, purge_step=step + 1)
    writer.add_text("settings", textwrap.indent(yaml.safe_dump(_told(config), sort_keys=False), "    "))
    callback = TensorBoardCallback(writer)
    callback.logging_dir = where  # the last measurement comes when it has closed its file, and gets another one
    return callback


def _wandb(folder: Path, config: TrainConfig, step: int) -> TrainerCallback:
    from transformers.integrations.integration_utils import WandbCallback

    name = folder / "wandb" / "id"
    name.parent.mkdir(parents=True, exist_ok=True)
    if not step or not name.exists():  # else it goes on under the same one
        name.write_text(secrets.token_hex(8))
    with _tracking() as wandb:
        wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pairwright"),
            name=folder.name,
            id=name.read_text(),
            resume="allow" if step else None,
            dir=os.environ.get("WANDB_DIR", str(folder)),
            config=_told(config),
        )
    return WandbCallback()


def _told(config: TrainConfig) -> dict[str, Any]:
    """Return a run's settings as trackers get them."""
    return config.model_dump(mode="json")


@contextmanager
def _tracking() -> Generator[Any]:
    """Give W&B's library; say what it says as a setting that does not fit.

    Raises:
        ConfigError: nobody is logged in, or no server answers.
    """
    wandb: Any = importlib.import_module("wandb")
    try:
        yield wandb
    except wandb.errors.Error as error:
        raise ConfigError(
            f"output.report_to: wandb: {error} Log in with: wandb login; or keep it all here with WANDB_MODE=offline"
        ) from error
