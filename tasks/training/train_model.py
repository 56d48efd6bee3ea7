"""Train a model on a run's frozen rows, from where its last checkpoint left off.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished model. Every rank of a
distributed training runs this; needs PyTorch, transformers, peft.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset
from transformers import TrainerCallback, TrainingArguments

from schemas.errors import TrainingError
from schemas.training import OptimiserConfig, TrainConfig
from tasks.store.files import Folder
from tasks.training.collate import Collator, ExampleRows
from tasks.training.freeze_rows import FrozenRows, Refused
from tasks.training.load_model import choose_precision, choose_storage, load_model, load_processor
from tasks.training.losses.objectives import OBJECTIVES, Goal
from tasks.training.metrics import MetricsFile
from tasks.training.preference_trainer import PreferenceTrainer, Setting
from tasks.training.references import Adapters, Copy, Reference
from tasks.training.runs import STEP, Run, publish_folder
from tasks.training.save_model import finish_model
from tasks.training.tune_model import prepare_model

log = logging.getLogger(__name__)
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""Of full tuning: paper 000's for SFT and ADPO; RLAIF-V's for what paper 004 does not publish."""
LORA_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Job:
    """Say what is trained, all of it prepared."""

    run: Run
    config: TrainConfig
    dataset: Folder
    start: Path
    """The model that the run starts from."""
    callbacks: Sequence[TrainerCallback] = ()


def train_model(job: Job) -> dict[str, float]:
    """Train to the end; return the last measurement on the held-out rows.

    Raises:
        ModelError: the model cannot be loaded.
        TrainingError: the loss is not finite, or a checkpoint cannot be saved.
    """
    config, run = job.config, job.run
    processor = load_processor(job.start)
    dtype = choose_precision(config)
    model = prepare_model(load_model(job.start, config.model, dtype=choose_storage(config)), config)
    metrics = MetricsFile(run.metrics)
    latest = run.latest()
    metrics.resume(int(latest.name.removeprefix(STEP)) if latest else 0)
    setting = Setting(
        run=run,
        config=config,
        goal=OBJECTIVES[config.objective],
        reference=_reference(job, dtype),
        adversary=None,
        metrics=metrics,
        refuse=_Refusing(run),
    )
    trainer = PreferenceTrainer(
        setting,
        model=model,
        args=arguments(run, config, dtype),
        train_dataset=train_rows(job),
        eval_dataset=held_out_rows(job),
        data_collator=Collator(processor, config.model.longest),
        processing_class=processor,
        callbacks=list(job.callbacks),
    )
    trainer.train(resume_from_checkpoint=str(latest) if latest else None)
    return _finish(trainer, run, job.start)


def train_rows(job: Job) -> Any:
    """Return the rows that are trained on."""
    loading = job.config.loading
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=loading.split)
    return _first(
        ExampleRows(rows, _goal(job).needs_of(job.config), job.config.model.most_pixels), loading.limit, job.config
    )


def held_out_rows(job: Job) -> Any:
    """Return the rows that are measured on, with their rejected texts whatever the objective."""
    loading = job.config.loading
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=loading.held_out)
    needs = _goal(job).needs_of(job.config)
    own = replace(needs, texts=max(needs.texts, 1), least="nothing")
    return _first(ExampleRows(rows, own, job.config.model.most_pixels), loading.held_out_rows, job.config)


def _goal(job: Job) -> Goal:
    return OBJECTIVES[job.config.objective]


def _first(rows: Any, count: int, config: TrainConfig) -> Any:
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(config.optimiser.seed)
    return Subset(rows, torch.randperm(len(rows), generator=generator)[:count].tolist())


def arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's own settings."""
    optimiser, saving, gpu = config.optimiser, config.saving, torch.cuda.is_available()
    return TrainingArguments(
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
        activation_checkpointing=optimiser.checkpointing,
        dataloader_num_workers=config.loading.workers,
        dataloader_pin_memory=gpu,
        logging_steps=saving.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=saving.every,
        eval_strategy="no",
        report_to=list(saving.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        ddp_find_unused_parameters=False,
    )


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the one that is set, else the objective's own."""
    own = LORA_RATE if config.model.tuning == "lora" else RATES[config.objective]
    return config.optimiser.learning_rate or own


def _schedule(optimiser: OptimiserConfig) -> str:
    return {"constant": "constant_with_warmup"}.get(optimiser.schedule, optimiser.schedule)


def _reference(job: Job, dtype: torch.dtype) -> Reference | None:
    if not OBJECTIVES[job.config.objective].needs_reference:
        return None
    if job.config.model.tuning == "lora":
        return Adapters()
    copy = load_model(job.start, job.config.model, dtype=dtype).eval().requires_grad_(requires_grad=False)
    return Copy(copy.to("cuda" if torch.cuda.is_available() else "cpu"))


def _finish(trainer: PreferenceTrainer, run: Run, start: Path) -> dict[str, float]:
    measured = trainer.measure()
    staged = run.folder / ".finishing"
    if trainer.is_world_process_zero():
        shutil.rmtree(staged, ignore_errors=True)
    try:
        trainer.save_model(str(staged))
    except (OSError, RuntimeError) as error:
        raise TrainingError(
            f"{run.model}: cannot be saved: {error}. Make room, and go on with the same command"
        ) from error
    if trainer.is_world_process_zero():
        finish_model(staged, start, trainer.setting.config)
        trainer.setting.metrics.write()
        publish_folder(staged, run.model)
    return measured


@dataclass
class _Refusing:
    """Remember the rows that turn out to be no good, each once."""

    run: Run

    def __call__(self, refused: Sequence[Refused]) -> None:
        if not refused:
            return
        path = self.run.folder / "refused.jsonl"
        known = {json.loads(line)["key"] for line in path.read_text().splitlines()} if path.exists() else set[str]()
        with path.open("a") as file:
            for one in refused:
                if one.key not in known:
                    log.warning("row %s is not trained on: %s %s", one.key, one.reason, one.detail)
                    file.write(json.dumps(asdict(one)) + "\n")
