"""Train a model on a run's frozen rows, from its last checkpoint.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished
model, samples of its answers. Every rank of a distributed training runs this. Unsupported launchers
and trackers are refused before loading. Needs PyTorch, transformers, peft.
"""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Subset
from transformers import TrainingArguments
from transformers.training_args import OptimizerNames
from transformers.utils.logging import disable_progress_bar

from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError, TrainingError
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.models.adaptive_batches import is_out_of_memory
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.manifest import write_manifest
from pairwright.tasks.training import load_model
from pairwright.tasks.training.answer_questions import measure_unreadable, sample_answers
from pairwright.tasks.training.collate import Collator, ExampleRows
from pairwright.tasks.training.estimate_memory import is_spread, need_less
from pairwright.tasks.training.find_model import require_bits
from pairwright.tasks.training.freeze_rows import FrozenRows, Needs
from pairwright.tasks.training.losses import TEXTS, measures_of, needs_of
from pairwright.tasks.training.pack_answers import can_pack
from pairwright.tasks.training.preference_trainer import PreferenceTrainer, TrainingSetup
from pairwright.tasks.training.ranks import Watcher, gather, own_rank, stoppable
from pairwright.tasks.training.retriever.adversary import open_adversary
from pairwright.tasks.training.runs import (
    FINISHING,
    HELD_OUT,
    RETRIEVER,
    SAVING,
    MetricsFile,
    Run,
    publish_folder,
)
from pairwright.tasks.training.save_checkpoints import Saving, finish_model
from pairwright.tasks.training.score_answers import open_reference
from pairwright.tasks.training.write_model_card import write_model_card

log = logging.getLogger(__name__)
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""Learning rates of full tuning: paper 000's for SFT and ADPO; RLAIF-V's where paper 004 publishes
none."""
LORA_RATE = 1e-4
BITS = re.compile(
    r"(?<!torch_)8bit|bnb|paged|lion|ademamix"
)  # matches names of bitsandbytes' optimisers


@dataclass(frozen=True, kw_only=True)
class Job:
    """Prepared training."""

    run: Run
    config: TrainConfig
    dataset: Folder
    start: Path  # the initial model
    watcher: Watcher | None = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Outcome of a training."""

    step: int
    steps: int
    measured: dict[str, float]  # last held-out metrics
    finished: bool  # whether the finished model exists; otherwise it was stopped, with a checkpoint


def train_model(job: Job) -> Ended:
    """Train to the end, or until a signal."""
    trainer = make_trainer(job)

    def is_stopped() -> bool:
        return any(gather(trainer.stopping or trainer.is_stopping))

    with stoppable(trainer):
        try:
            trainer.fit(job.run.latest())
        except (PairwrightError, RuntimeError, MemoryError):
            # For the run page; a resumed run reads metrics up to its checkpoint only.
            if trainer.is_world_process_zero():
                with contextlib.suppress(StoreError):
                    trainer.setting.metrics.write()
            raise
        if not is_stopped():
            trainer.measure()
        if finished := not is_stopped():
            saving = Saving(job.run, job.run.model.name)
            saving.agree(lambda: _finish(trainer, job))
    if trainer.alarm:
        name, advice = trainer.alarm
        raise TrainingError(
            f"stopped at step {trainer.state.global_step}: {name[0].lower()}{name[1:]}. {advice} "
            f"{job.run.folder} has a checkpoint and keeps its settings: give another --name, or continue with --set "
            "output.alarms=log"
        )
    state, measured = trainer.state, trainer.setting.metrics.last(HELD_OUT)
    return Ended(
        step=state.global_step, steps=state.max_steps, measured=measured, finished=finished
    )


def make_trainer(job: Job) -> PreferenceTrainer:
    """Return a run's trainer, its model loaded."""
    config, run, data = job.config, job.run, job.config.data
    disable_progress_bar()  # of file reads and writes
    logging.getLogger("accelerate").setLevel(logging.WARNING)  # it logs each file of a checkpoint
    processor = load_model.load_processor(job.start)
    model = _place_model(
        load_model.prepare_model(load_model.load_to_train(job.start, config), config)
    )
    metrics = MetricsFile(run.metrics)
    if steps := run.steps():
        metrics.resume(steps[-1])
    shared, adversary = config.model.shared_prompt, None
    if unknown := shared == "auto" and not can_pack(model):
        log.info(
            "answers do not share their prompt: %s models may score them otherwise",
            model.config.model_type,
        )
    apart, is_adpo = shared == "never" or unknown, config.objective == "adpo"
    collator = Collator(
        processor, config.model.max_length, apart=apart, late=config.adpo.samples * is_adpo
    )
    if is_adpo:
        adversary = open_adversary(
            run.folder / RETRIEVER,
            config,
            rows=run.rows,
            dataset=job.dataset,
            tokenize=lambda text: collator.answers([text], TEXTS)[0].ids,
        )
    setting = TrainingSetup(
        run=run,
        config=config,
        reference=open_reference(config, job.start, run.folder),
        adversary=adversary,
        metrics=metrics,
        measure_answers=measure_unreadable,
        watcher=job.watcher if own_rank() == 0 else None,
    )
    return PreferenceTrainer(
        setting,
        model=model,
        args=make_arguments(run, config, load_model.choose_precision(config)),
        train_dataset=_rows(job, data.split, needs_of(config), data.max_train_rows),
        eval_dataset=_rows(job, data.eval_split, measures_of(config), data.max_eval_rows),
        data_collator=collator,
        processing_class=processor,
    )


def _place_model(model: Any) -> Any:
    """Move a model to its process's GPU, unless FSDP shards it."""
    if is_spread():
        # Shard language layers only: a rank without images skips the vision tower, and SigLIP lists
        # text layers that
        # accelerate would not find.
        base, kept = (
            model.get_base_model() if hasattr(model, "get_base_model") else model,
            "_no_split_modules",
        )
        setattr(
            base,
            kept,
            {type(one).__name__ for one in base.get_decoder().modules()} & set(getattr(base, kept)),
        )
    if is_spread() or not torch.cuda.is_available():
        return model
    return model.to(torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))


def find_rows(job: Job, split: str) -> FrozenRows:
    """Return the run's frozen rows of a split."""
    return FrozenRows(folder=job.dataset, file=str(job.run.rows), split=split)


def _rows(job: Job, split: str, needs: Needs, count: int = 0) -> Any:
    """Return ``count`` random rows of a split; 0: all, in the table's order."""
    rows = ExampleRows(find_rows(job, split), needs, job.config.model.max_pixels)
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(job.config.seed)
    return Subset(
        cast("Any", rows), torch.randperm(len(rows), generator=generator)[:count].tolist()
    )


def _finish(trainer: PreferenceTrainer, job: Job) -> None:
    run, first = job.run, trainer.is_world_process_zero()
    if plugin := trainer.accelerator.state.fsdp_plugin if trainer.is_fsdp_enabled else None:
        plugin.set_state_dict_type("FULL_STATE_DICT")
    staged = run.folder / FINISHING
    if first:
        shutil.rmtree(staged, ignore_errors=True)
    trainer.save_model(str(staged))
    if first:
        if trainer.setting.adversary:
            trainer.setting.adversary.publish(run.folder / RETRIEVER)
            write_manifest(run.folder / RETRIEVER)
        finish_model(staged, job.start, job.config)
        rows, metrics = find_rows(job, job.config.data.split), trainer.setting.metrics
        write_model_card(staged, run, config=job.config, rows=rows, metrics=metrics)
        sample_answers(trainer, run.folder)
        metrics.write()
        publish_folder(staged, run.model)
        run.clean()


@contextlib.contextmanager
def fitting(config: TrainConfig, run: Run) -> Generator[None]:
    """Turn PyTorch's out-of-memory errors into ``TrainingError`` with settings that need less."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        kept = (
            f"; {run.folder} has a checkpoint and keeps its settings: give another --name"
            if run.latest()
            else ""
        )
        said = str(error).strip().partition("\n")[0]  # PyTorch appends frames
        raise TrainingError(f"out of memory: {said}. Try {need_less(config)}{kept}") from error


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; logging, evaluation and checkpoint rotation are ours."""
    optimiser, output, gpu = config.optimiser, config.output, torch.cuda.is_available()
    schedule = optimiser.lr_scheduler_type
    if "tensorboard" in output.report_to:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(run.folder / "tensorboard")
    arguments: Any = TrainingArguments(
        output_dir=str(run.folder / SAVING),
        run_name=run.folder.name,
        per_device_train_batch_size=optimiser.per_device_train_batch_size,
        gradient_accumulation_steps=optimiser.gradient_accumulation_steps,
        num_train_epochs=optimiser.num_train_epochs,
        max_steps=optimiser.max_steps or -1,
        learning_rate=rate_of(config),
        warmup_steps=optimiser.warmup_ratio,
        lr_scheduler_type="constant_with_warmup" if schedule == "constant" else schedule,
        weight_decay=optimiser.weight_decay,
        max_grad_norm=optimiser.max_grad_norm,
        optim=optimiser.optim,
        seed=config.seed,
        data_seed=config.seed,
        bf16=dtype is torch.bfloat16,
        use_cpu=not gpu,
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False}
        if optimiser.gradient_checkpointing
        else None,
        logging_steps=output.logging_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_steps=output.save_steps,
        eval_strategy="no",
        report_to=list(output.report_to) or "none",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=[],
        # Vision towers have unused layers, and a batch without images uses none.
        ddp_find_unused_parameters=config.model.train_vision or config.model.differential.enabled,
    )
    if (found := arguments.n_gpu) > 1:  # packed batches cannot be split by DataParallel
        log.warning(
            "using one of %d GPUs; use all with: torchrun --nproc-per-node %d -m pairwright train ...",
            found,
            found,
        )
        arguments._n_gpu = 1
    return arguments


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the configured one, else the objective's default."""
    own = LORA_RATE if config.model.tuning == "lora" else RATES[config.objective]
    return config.optimiser.learning_rate or own


def check_libraries(config: TrainConfig) -> None:
    """Refuse optimisers that transformers does not know, and optimisers and trackers whose library is missing."""
    if missing := next((one for one in config.output.report_to if find_spec(one) is None), ""):
        raise ConfigError(
            f"output.report_to: {missing} is not installed here: python -m pip install {missing}"
        )
    name = config.optimiser.optim
    if name not in (known := [one.value for one in OptimizerNames]):
        raise ConfigError(
            f"optimiser.optim: unknown optimiser {name!r}; choose from {', '.join(known)}"
        )
    if BITS.search(name):
        require_bits(f"optimiser.optim: {name}")


def check_launcher(config: TrainConfig) -> None:
    """Check how the processes were launched; call after ``join_ranks``."""
    whole = "start it with: torchrun --nproc-per-node 2 -m pairwright train ..."
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        raise ConfigError(
            f"accelerate: DeepSpeed is not supported; use FSDP (--use_fsdp --fsdp_version 2), or {whole}"
        )
    if not is_spread():
        return
    if config.objective == NAMC or config.model.load_in_4bit or BITS.search(config.optimiser.optim):
        raise ConfigError(
            f"accelerate: FSDP does not support NAMC, 4-bit weights, bitsandbytes' optimisers; {whole}"
        )
    if (version := os.environ.get("FSDP_VERSION", "1")) != "2":
        raise ConfigError(f"accelerate: fsdp_version is {version}; give --fsdp_version 2")
    if (
        os.environ.get("FSDP_STATE_DICT_TYPE") == "FULL_STATE_DICT"
        and config.model.tuning == "lora"
    ):
        raise ConfigError(
            "accelerate: some adapters would be lost; give --fsdp_state_dict_type SHARDED_STATE_DICT"
        )
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    if PartialState().distributed_type in (DistributedType.MULTI_CPU, DistributedType.NO):
        raise ConfigError(f"accelerate: use_fsdp needs several GPUs and processes; {whole}")
