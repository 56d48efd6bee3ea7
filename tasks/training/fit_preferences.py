"""Train a vision-language model on a run's frozen rows, from its last checkpoint.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished
model, samples of its answers. Every rank of a distributed training runs this. Needs PyTorch,
transformers, peft.
"""

import contextlib
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Subset
from transformers import TrainingArguments
from transformers.utils.logging import disable_progress_bar

from pairwright.schemas.errors import PairwrightError, StoreError, TrainingError
from pairwright.schemas.training import STAND_INS, TrainConfig
from pairwright.tasks.models.weights import is_model_folder
from pairwright.tasks.store.manifest import write_manifest
from pairwright.tasks.training import load_model
from pairwright.tasks.training.answer_questions import measure_unreadable, sample_answers
from pairwright.tasks.training.collate import Collator, ExampleRows
from pairwright.tasks.training.estimate_memory import is_sharded
from pairwright.tasks.training.find_model import ADAPTERS
from pairwright.tasks.training.freeze_rows import Needs
from pairwright.tasks.training.image_size import (
    ImageGrid,
    bound_pixels,
    grid_of,
    read_max_pixels,
    write_image_size,
)
from pairwright.tasks.training.losses import TEXTS, measures_of, needs_of
from pairwright.tasks.training.objective import Ended, Job
from pairwright.tasks.training.pack_answers import explain_unpacked
from pairwright.tasks.training.preference_trainer import PreferenceTrainer, TrainingSetup
from pairwright.tasks.training.ranks import gather_ranks, own_rank, stoppable
from pairwright.tasks.training.retriever.adversary import RetrieverAdversary, open_adversary
from pairwright.tasks.training.runs import (
    FINISHING,
    HELD_OUT,
    RETRIEVER,
    SAVING,
    MetricsFile,
    Run,
    publish_folder,
)
from pairwright.tasks.training.save_checkpoints import Saving, finish_model, restore_settings
from pairwright.tasks.training.score_answers import open_reference
from pairwright.tasks.training.write_model_card import CardModel, write_model_card

log = logging.getLogger(__name__)
RATES = {
    "sft": 5e-7,
    "dpo": 5e-7,
    "mdpo": 5e-7,
    "adavip": 5e-7,
    "symmpo": 5e-6,
    "adpo": 3e-6,
    "grpo": 1e-6,
}
"""Learning rates of full tuning: paper 000's for SFT and ADPO; RLAIF-V's where paper 004 publishes
none; for SymMPO that of the authors' script, for GRPO TRL's."""
LORA_RATE = 1e-4
PROJECTOR_RATE = 1e-3  # LLaVA-1.5, first stage


def fit_preferences(job: Job) -> Ended:
    """Train to the end, or until a signal."""
    trainer = make_trainer(job)

    def is_stopped() -> bool:
        return any(gather_ranks(trainer.stopping or trainer.is_stopping))

    with stoppable(trainer):
        try:
            trainer.fit(job.run.latest())
        except (PairwrightError, RuntimeError, MemoryError):
            # For the run page; a resumed run reads metrics up to its checkpoint only.
            if trainer.is_world_process_zero():
                with contextlib.suppress(StoreError):
                    trainer.setup.metrics.write_file()
            raise
        if not is_stopped():
            trainer.measure()
        finished = not is_stopped()
        if finished:
            saving = Saving(job.run, job.run.model.name)
            saving.agree(lambda: _finish(trainer, job))
    if trainer.alarm:
        name, advice = trainer.alarm
        raise TrainingError(
            f"stopped at step {trainer.state.global_step}: {name[0].lower()}{name[1:]}. {advice} "
            f"{job.run.folder} has a checkpoint and keeps its settings: give another --name, "
            "or continue with --set output.alarms=log"
        )
    return Ended(
        step=trainer.state.global_step,
        steps=trainer.state.max_steps,
        measured=trainer.setup.metrics.last(HELD_OUT),
        finished=finished,
    )


def make_trainer(job: Job) -> PreferenceTrainer:
    """Return a run's trainer, its model loaded."""
    config = job.config
    run = job.run
    disable_progress_bar()  # of file reads and writes
    logging.getLogger("accelerate").setLevel(logging.WARNING)  # it logs each file of a checkpoint
    processor = load_model.load_processor(job.start, config.model.template_kwargs)
    bound_pixels(processor, config.model.max_pixels)
    grid = grid_of(processor)
    loaded = load_model.load_to_train(job.start, config)
    model = place_model(load_model.prepare_model(loaded, config))
    metrics = MetricsFile(run.metrics)
    steps = run.steps()
    if steps:
        metrics.read_until(steps[-1])
    is_adpo = config.objective == "adpo"
    collator = Collator(
        processor,
        config.model.max_length,
        apart=not _shares_prompt(config, model),
        late=config.adpo.samples if is_adpo else 0,
    )
    adversary = _open_adversary(job, collator) if is_adpo else None
    setup = TrainingSetup(
        run=run,
        config=config,
        reference=open_reference(config, job.start, run),
        adversary=adversary,
        metrics=metrics,
        measure_answers=measure_unreadable,
        watcher=job.watcher if own_rank() == 0 else None,
    )
    return PreferenceTrainer(
        setup,
        model=model,
        args=make_arguments(run, config, load_model.choose_precision(config)),
        train_dataset=read_examples(job, needs_of(config), grid=grid),
        eval_dataset=read_examples(job, measures_of(config), grid=grid, held_out=True),
        data_collator=collator,
        processing_class=processor,
    )


def _shares_prompt(config: TrainConfig, model: Any) -> bool:
    """Return whether a prompt is encoded once for all its answers."""
    if config.model.shared_prompt != "auto":
        return config.model.shared_prompt == "always"
    if config.model.attn_implementation == "flash_attention_2":
        log.info("answers do not share their prompt: FlashAttention has no mask for that")
        return False
    reason = explain_unpacked(model)
    if reason:
        log.info("%s: answers do not share their prompt: %s", model.config.model_type, reason)
    return not reason


def _open_adversary(job: Job, collator: Collator) -> RetrieverAdversary:
    return open_adversary(
        job.run.folder / RETRIEVER,
        job.config,
        rows=job.run.rows,
        dataset=job.dataset,
        tokenize=lambda text: collator.answers([text], TEXTS)[0].ids,
    )


def place_model(model: Any) -> Any:
    """Move a model to its process's GPU, unless FSDP shards it."""
    if is_sharded():
        _shard_language_layers(model)
        return model
    if not torch.cuda.is_available():
        return model
    return model.to(torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))


def _shard_language_layers(model: Any) -> None:
    """Let FSDP shard layers of the language model only.

    A rank without images skips the vision tower, and SigLIP lists text layers that accelerate would
    not find.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    layers = {type(module).__name__ for module in base.get_decoder().modules()}
    base._no_split_modules = layers & set(base._no_split_modules)


def read_examples(job: Job, needs: Needs, *, grid: ImageGrid | None, held_out: bool = False) -> Any:
    """Return the run's number of random rows of a split; 0: all, in the table's order."""
    data = job.config.data
    split = data.eval_split if held_out else data.split
    count = data.max_eval_rows if held_out else data.max_train_rows
    rows = ExampleRows(job.frozen_rows(split), needs, job.config.model.max_pixels, grid)
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(job.config.seed)
    drawn = torch.randperm(len(rows), generator=generator)[:count].tolist()
    return Subset(cast("Any", rows), drawn)


def _finish(trainer: PreferenceTrainer, job: Job) -> None:
    """Write the finished model with its card and samples; all ranks call it."""
    if trainer.is_fsdp_enabled:
        plugin = trainer.accelerator.state.fsdp_plugin
        if plugin:
            plugin.set_state_dict_type("FULL_STATE_DICT")
    adversary = trainer.setup.adversary
    if adversary and trainer.is_world_process_zero():
        adversary.save_network(job.run.folder / RETRIEVER)
        write_manifest(job.run.folder / RETRIEVER)
    finish_run(trainer, job)


def finish_run(trainer: Any, job: Job) -> None:
    """Write the finished model with its card and samples; all ranks call it."""
    run = job.run
    staged = run.folder / FINISHING
    is_first = trainer.is_world_process_zero()
    if is_first:
        shutil.rmtree(staged, ignore_errors=True)
    trainer.save_model(str(staged))
    if not is_first:
        return
    metrics = trainer.setup.metrics
    finish_model(staged, job.start, job.config)
    restore_settings(staged, job.start, job.config)
    write_image_size(staged, trainer.processing_class, job.config.model.max_pixels)
    write_model_card(
        staged,
        run,
        config=job.config,
        rows=job.frozen_rows(job.config.data.split),
        metrics=metrics,
        model=_describe_for_card(job.config, staged, trainer.processing_class),
    )
    sample_answers(trainer, run.folder)
    metrics.write_file()
    publish_folder(staged, run.model)
    run.clean()


def _describe_for_card(config: TrainConfig, folder: Path, processor: Any) -> CardModel:
    """Return kind, start model and image size of a finished model."""
    model = CardModel(
        kind="adapter" if (folder / ADAPTERS).exists() else "finetune",
        max_pixels=read_max_pixels(folder),
        has_grid=grid_of(processor) is not None,
    )
    name = config.model.name
    if name in STAND_INS:
        return model
    if is_model_folder(name):
        return replace(model, base=Path(name).name)
    return replace(model, base=name, on_hub=True)


def make_arguments(run: Run, config: TrainConfig, dtype: torch.dtype) -> TrainingArguments:
    """Return the Trainer's settings; logging, evaluation and checkpoint rotation are ours."""
    arguments: Any = TrainingArguments(**argument_values(run, config, dtype))
    gpus = arguments.n_gpu
    if gpus > 1:  # packed batches cannot be split by DataParallel
        log.warning(
            "using one of %d GPUs; "
            "use all with: torchrun --nproc-per-node %d -m pairwright train ...",
            gpus,
            gpus,
        )
        arguments._n_gpu = 1
    return arguments


def argument_values(run: Run, config: TrainConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return the Trainer's settings by name."""
    optimiser = config.optimiser
    output = config.output
    schedule = optimiser.lr_scheduler_type
    if "tensorboard" in output.report_to:
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(run.folder / "tensorboard")
    checkpointing = optimiser.gradient_checkpointing
    trains_parts = config.model.train_vision or config.model.differential.enabled
    return {
        "output_dir": str(run.folder / SAVING),
        "run_name": run.folder.name,
        "per_device_train_batch_size": optimiser.per_device_train_batch_size,
        "gradient_accumulation_steps": optimiser.gradient_accumulation_steps,
        "num_train_epochs": optimiser.num_train_epochs,
        "max_steps": optimiser.max_steps or -1,
        "learning_rate": rate_of(config),
        "warmup_steps": optimiser.warmup_steps or optimiser.warmup_ratio,
        "lr_scheduler_type": "constant_with_warmup" if schedule == "constant" else schedule,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "optim": optimiser.optim,
        "seed": config.seed,
        "data_seed": config.seed,
        "bf16": dtype is torch.bfloat16,
        "use_cpu": not torch.cuda.is_available(),
        "activation_checkpointing": checkpointing,
        "activation_checkpointing_kwargs": {"use_reentrant": False} if checkpointing else None,
        "logging_steps": output.logging_steps,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_steps": output.save_steps,
        "eval_strategy": "no",
        "report_to": list(output.report_to) or "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "label_names": [],
        # Vision towers have unused layers, and a batch without images uses none.
        "ddp_find_unused_parameters": trains_parts,
    }


def rate_of(config: TrainConfig) -> float:
    """Return the learning rate: the configured one, else the objective's default."""
    if config.optimiser.learning_rate:
        return config.optimiser.learning_rate
    if config.model.tuning == "full":
        return RATES[config.objective]
    return LORA_RATE if config.model.tuning == "lora" else PROJECTOR_RATE
