"""Train a model on a run's frozen rows, from its last checkpoint.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished model, samples of its
answers. Every rank of a distributed training runs this. Unsupported launchers and trackers are refused before loading.
Needs PyTorch, transformers, peft.
"""

import contextlib
import difflib
import importlib
import importlib.util
import logging
import os
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Subset
from transformers import TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.training_args import OptimizerNames
from transformers.utils.logging import disable_progress_bar

from pairwright.schemas.errors import ConfigError, StoreError, TrainingError
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.models.batches import is_out_of_memory
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.manifest import write_manifest
from pairwright.tasks.training import load_model
from pairwright.tasks.training.answer_questions import measure_unreadable, sample_answers
from pairwright.tasks.training.collate import Collator, ExampleRows
from pairwright.tasks.training.find_model import require_bits
from pairwright.tasks.training.freeze_rows import FrozenRows, Needs
from pairwright.tasks.training.load_batches import count_workers, start_server
from pairwright.tasks.training.losses import TEXTS, measures_of, needs_of
from pairwright.tasks.training.memory import FSDP, is_spread
from pairwright.tasks.training.preference_trainer import PreferenceTrainer, Setting
from pairwright.tasks.training.ranks import Watcher, gather, own_rank, spread, stoppable
from pairwright.tasks.training.retriever.adversary import open_adversary
from pairwright.tasks.training.runs import FINISHING, HELD_OUT, RETRIEVER, SAVING, MetricsFile, Run, publish_folder
from pairwright.tasks.training.save_checkpoints import Saving, finish_model, first_line
from pairwright.tasks.training.score_answers import open_reference, packs_well
from pairwright.tasks.training.write_model_card import write_model_card

log = logging.getLogger(__name__)
TRIED_ROWS = 8  # rows on which packing is tried; two with a rejected text are enough
RATES = {"sft": 5e-7, "dpo": 5e-7, "mdpo": 5e-7, "adavip": 5e-7, "adpo": 3e-6}
"""For full tuning: paper 000's for SFT and ADPO; RLAIF-V's where paper 004 publishes none."""
LORA_RATE = 1e-4
BITS = re.compile(r"(?<!torch_)8bit|bnb|paged|lion|ademamix")  # matches names of bitsandbytes' optimisers


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
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    if plugin is not None and plugin.zero_stage == 3 and not plugin.zero3_save_16bit_model:
        raise ConfigError(
            "DeepSpeed: zero_optimization.stage3_gather_16bit_weights_on_model_save must be true, so that the finished "
            "model can be written (accelerate: zero3_save_16bit_model)"
        )

    def is_stopped() -> bool:
        return any(gather(trainer.stopping or trainer.is_stopping))

    with stoppable(trainer):
        try:
            trainer.fit(job.run.latest())
        except (TrainingError, RuntimeError, MemoryError):
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
    return Ended(step=state.global_step, steps=state.max_steps, measured=measured, finished=finished)


def make_trainer(job: Job) -> PreferenceTrainer:
    """Return a run's trainer, its model loaded."""
    config, run, data = job.config, job.run, job.config.data
    disable_progress_bar()  # of file reads and writes
    logging.getLogger("accelerate").setLevel(logging.WARNING)  # it logs each file of a checkpoint
    processor = load_model.load_processor(job.start)
    if count_workers(data.dataloader_num_workers):
        start_server(processor)
    model = _place_model(load_model.prepare_model(load_model.load_to_train(job.start, config), config))
    metrics = MetricsFile(run.metrics)
    if steps := run.steps():
        metrics.resume(steps[-1])
    collator, adversary = _make_collator(job, model, processor), None
    if config.objective == "adpo":
        adversary = open_adversary(
            run.folder / RETRIEVER,
            config,
            rows=run.rows,
            dataset=job.dataset,
            tokenize=lambda text: collator.answers([text], TEXTS)[0].ids,
        )
    setting = Setting(
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
        train_dataset=train_rows(job),
        eval_dataset=_rows(job, data.eval_split, measures_of(config), data.max_eval_rows),
        data_collator=collator,
        processing_class=processor,
    )


def _place_model(model: Any) -> Any:
    """Move a model to its process's GPU, unless FSDP or DeepSpeed shards it."""
    if is_spread():
        # Shard language layers only: a rank without images skips the vision tower, and SigLIP lists text layers that
        # accelerate would not find.
        base, kept = model.get_base_model() if hasattr(model, "get_base_model") else model, "_no_split_modules"
        setattr(base, kept, {type(one).__name__ for one in base.get_decoder().modules()} & set(getattr(base, kept)))
    if is_spread() or not torch.cuda.is_available():
        return model
    return model.to(torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))


def train_rows(job: Job) -> Any:
    """Return the training rows."""
    return _rows(job, job.config.data.split, needs_of(job.config), job.config.data.max_train_rows)


def find_rows(job: Job, split: str) -> FrozenRows:
    """Return the run's frozen rows of a split."""
    return FrozenRows(folder=job.dataset, file=str(job.run.rows), split=split)


def _rows(job: Job, split: str, needs: Needs, count: int = 0) -> Any:
    """Return ``count`` random rows of a split; 0: all, in the table's order."""
    rows = ExampleRows(find_rows(job, split), needs, job.config.model.max_pixels)
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(job.config.seed)
    return Subset(cast("Any", rows), torch.randperm(len(rows), generator=generator)[:count].tolist())


def _make_collator(job: Job, model: Any, processor: Any) -> Collator:
    """Return the collator; answers share their prompt where the model scores them the same."""
    config, why = job.config, ""
    collator = Collator(processor, config.model.max_length, late=config.adpo.samples * (config.objective == "adpo"))
    if config.model.shared_prompt == "never":
        return replace(collator, apart=True)
    if own_rank() == 0:
        dtype = load_model.choose_precision(config)
        rows = _rows(job, config.data.split, measures_of(config))
        first = [rows[n] for n in range(min(len(rows), TRIED_ROWS))]
        with load_model.computing(model.device, dtype):
            why = packs_well(model, collator, first, dtype=dtype)
    if (why := spread(why)) and config.model.shared_prompt == "always":
        raise ConfigError(f"model.shared_prompt always: {why}. Use auto")
    if why:
        log.info("answers are not packed: %s", why)
    return replace(collator, apart=bool(why))


def _finish(trainer: PreferenceTrainer, job: Job) -> None:
    run, first = job.run, trainer.is_world_process_zero()
    if plugin := trainer.accelerator.state.fsdp_plugin if trainer.is_fsdp_enabled else None:
        plugin.set_state_dict_type("FULL_STATE_DICT")
    staged = run.folder / FINISHING
    if first:
        shutil.rmtree(staged, ignore_errors=True)
    trainer.save_model(str(staged))
    if trainer.is_deepspeed_enabled:
        unset_hf_deepspeed_config()  # else all ranks would load the merged model in parts
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
        kept = f"; {run.folder} has a checkpoint and keeps its settings: give another --name" if run.latest() else ""
        raise TrainingError(f"out of memory: {first_line(error)}. Try {_advise(config)}{kept}") from error


def _advise(config: TrainConfig) -> str:
    """Return settings that need less memory, first those without effect on results."""
    optimiser, found = config.optimiser, list[str]()
    if half := optimiser.per_device_train_batch_size // 2:
        twice = 2 * optimiser.gradient_accumulation_steps
        found.append(
            f"--set optimiser.per_device_train_batch_size={half} --set optimiser.gradient_accumulation_steps={twice}"
        )
    if config.objective != NAMC:
        found += [] if optimiser.gradient_checkpointing else ["--set optimiser.gradient_checkpointing=true"]
        found += [] if config.model.tuning == "lora" else ["--set model.tuning=lora"]
        found.append(f"--set model.max_pixels={config.model.max_pixels // 2}")
    return ", or ".join(found) or "a smaller model (one row at a time already)"


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; logging, evaluation and checkpoint rotation are ours."""
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
        optim=optimiser.optim,
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
        # Vision towers have unused layers, and a batch without images uses none.
        ddp_find_unused_parameters=config.model.train_vision or config.model.differential.enabled,
    )
    if (found := arguments.n_gpu) > 1:  # packed batches cannot be split by DataParallel
        log.warning(
            "using one of %d GPUs; use all with: torchrun --nproc-per-node %d -m pairwright train ...", found, found
        )
        arguments._n_gpu = 1
    return arguments


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the configured one, else the objective's default."""
    own = LORA_RATE if config.model.tuning == "lora" else RATES[config.objective]
    return config.optimiser.learning_rate or own


def check_trackers(config: TrainConfig) -> None:
    """Refuse trackers that are not installed or not logged in."""
    for name in config.output.report_to:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"output.report_to: {name} is not installed here: python -m pip install {name}")
    if "wandb" in config.output.report_to:
        wandb: Any = importlib.import_module("wandb")
        try:
            wandb.login()
        except wandb.errors.Error as error:
            raise ConfigError(
                f"output.report_to: wandb: {error} Log in with: wandb login; or stay local with WANDB_MODE=offline"
            ) from error


def check_optimiser(config: TrainConfig) -> None:
    """Refuse optimisers that transformers does not know, or whose library is missing."""
    name = config.optimiser.optim
    if name not in (known := [one.value for one in OptimizerNames]):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        raise ConfigError(f"optimiser.optim: unknown optimiser {name!r}; {hint}")
    if BITS.search(name):
        require_bits(f"optimiser.optim: {name}")


def check_launcher(config: TrainConfig) -> None:
    """Check how the processes were launched; call after ``join_ranks``."""
    if not is_spread():
        return
    fsdp, model = os.environ.get(FSDP, "").lower() == "true", config.model
    if fsdp and (version := os.environ.get("FSDP_VERSION", "1")) != "2":
        raise ConfigError(f"accelerate: fsdp_version is {version}; give --fsdp_version 2")
    if fsdp and os.environ.get("FSDP_STATE_DICT_TYPE") == "FULL_STATE_DICT" and model.tuning == "lora":
        raise ConfigError(
            "accelerate: fsdp_state_dict_type FULL_STATE_DICT loses some adapters; give --fsdp_state_dict_type "
            "SHARDED_STATE_DICT"
        )
    if model.load_in_4bit or BITS.search(config.optimiser.optim):
        raise ConfigError(
            "accelerate: FSDP and DeepSpeed do not support 4-bit weights and bitsandbytes' optimisers; start it with: "
            "torchrun -m pairwright train ..."
        )
    beside = model.tuning == "lora" and model.train_vision and model.vision_tuning == "full"
    if not fsdp and (model.differential.enabled or beside or config.optimiser.vision_learning_rate):
        raise ConfigError(
            "accelerate: DeepSpeed does not support differential perception, weights trained in full beside adapters, "
            "and optimiser.vision_learning_rate; use FSDP (--use_fsdp --fsdp_version 2), or start it with: torchrun "
            "-m pairwright train ..."
        )
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    if PartialState().distributed_type in (DistributedType.MULTI_CPU, DistributedType.NO):
        raise ConfigError(
            f"accelerate: {'use_fsdp' if fsdp else 'use_deepspeed'} needs several GPUs and processes. Start it "
            "without that option; on CPUs with: torchrun --nproc-per-node 2 -m pairwright train ..."
        )
