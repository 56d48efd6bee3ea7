"""Set TRL's trainers up for the rows and the model of one of our runs: what users would otherwise
train with.

Reads the same ``PreferenceRow`` and the same checkpoint, through TRL's own collator and
``datasets``' own images. Needs trl, peft, datasets, PyTorch.
"""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.load_model import (
    choose_precision,
    choose_storage,
    load_model,
    load_processor,
    prepare_model,
)

NEWLINE = "{{ '\n' }}"
LAST = "{% if not loop.last or add_generation_prompt %}" + NEWLINE + "{% endif %}"


def quiet() -> None:
    """Leave out what transformers says about the names of settings that TRL uses."""
    warnings.filterwarnings("ignore", ".*is deprecated and will be removed in v6", FutureWarning)


def trl_processor(folder: Path) -> Any:
    """Return a checkpoint's processor whose chat template ends with an answer's end mark.

    The families' own templates write a newline behind it, which TRL takes for a part of the answer:
    one more token of the loss, that no answer is ever asked for.
    """
    processor = load_processor(folder)
    processor.chat_template = without_last_newline(processor.chat_template)
    return processor


def without_last_newline(template: str) -> str:
    """Return a chat template that writes no newline behind the last message, unless an answer is to
    follow."""
    head, newline, tail = template.rpartition("<|im_end|>\n")
    if not newline:
        raise ValueError("the chat template has no end mark with a newline behind it")
    return f"{head}<|im_end|>{LAST}{tail}"


def as_dataset(rows: Iterable[PreferenceRow], *, supervised: bool = False) -> Any:
    """Return rows as TRL takes them: a prompt, two answers (or one completion), images as encoded
    files."""
    import datasets

    table: dict[str, list[Any]] = {"images": [], "prompt": []}
    answers = (
        {"completion": "chosen"} if supervised else {"chosen": "chosen", "rejected": "rejected"}
    )
    for row in rows:
        table["images"].append([{"bytes": image, "path": None} for image in row.images])
        table["prompt"].append([{"role": turn.role, "content": turn.text} for turn in row.prompt])
        for name, field in answers.items():
            said = [{"role": "assistant", "content": getattr(row, field)}]
            table.setdefault(name, []).append(said)
    message = [{"role": datasets.Value("string"), "content": datasets.Value("string")}]
    features = {"images": datasets.List(datasets.Image()), "prompt": message} | dict.fromkeys(
        answers, message
    )
    return datasets.Dataset.from_dict(table, features=datasets.Features(features))


def dpo_trainer(
    folder: Path, rows: Sequence[PreferenceRow], config: TrainConfig, **settings: Any
) -> Any:
    """Return TRL's DPO trainer; ``settings`` are its own.

    With LoRA its reference is the model without adapters, as ours is; with full tuning a copy.
    """
    from trl import DPOConfig, DPOTrainer

    quiet()
    model, adapters = _model(folder, config)
    reference = None if adapters else _frozen(folder, config)
    return DPOTrainer(
        model,
        reference,
        args=DPOConfig(beta=config.dpo.beta, max_length=config.model.max_length, **settings),
        train_dataset=as_dataset(rows),
        processing_class=trl_processor(folder),
        peft_config=adapters,
    )


def sft_trainer(
    folder: Path, rows: Sequence[PreferenceRow], config: TrainConfig, **settings: Any
) -> Any:
    """Return TRL's trainer for supervised fine-tuning."""
    from trl import SFTConfig, SFTTrainer

    quiet()
    model, adapters = _model(folder, config)
    return SFTTrainer(
        model,
        args=SFTConfig(max_length=config.model.max_length, **settings),
        train_dataset=as_dataset(rows, supervised=True),
        processing_class=trl_processor(folder),
        peft_config=adapters,
    )


def settings_of(config: TrainConfig) -> dict[str, Any]:
    """Return our settings of the optimiser and the loader by TRL's names; its defaults that cost
    speed are off."""
    optimiser, gpu = config.optimiser, torch.cuda.is_available()
    return {
        "per_device_train_batch_size": optimiser.per_device_train_batch_size,
        "gradient_accumulation_steps": optimiser.gradient_accumulation_steps,
        "max_steps": optimiser.max_steps,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": {"constant": "constant_with_warmup"}.get(
            optimiser.lr_scheduler_type, optimiser.lr_scheduler_type
        ),
        "warmup_steps": optimiser.warmup_ratio,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "seed": config.seed,
        "train_sampling_strategy": "sequential",  # rows come in our order
        "bf16": choose_precision(config) is torch.bfloat16,
        "use_cpu": not gpu,
        "gradient_checkpointing": optimiser.gradient_checkpointing,
        "dataloader_num_workers": config.data.dataloader_num_workers,
        "dataloader_pin_memory": gpu,
        "logging_steps": config.output.logging_steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def _model(folder: Path, config: TrainConfig) -> tuple[Any, Any]:
    """Return the model, and the adapters that it is to get: on the layers that ours get."""
    import peft

    model = prepare_model(load_model(folder, config.model, dtype=choose_storage(config)), config)
    if config.model.tuning == "full":
        return model, None
    own = model.peft_config["default"]
    adapters = peft.LoraConfig(
        r=own.r,
        lora_alpha=own.lora_alpha,
        lora_dropout=own.lora_dropout,
        target_modules=own.target_modules,
    )
    return model.unload(), adapters


def _frozen(folder: Path, config: TrainConfig) -> Any:
    return (
        load_model(folder, config.model, dtype=choose_precision(config))
        .eval()
        .requires_grad_(requires_grad=False)
    )
