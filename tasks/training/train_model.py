"""Train a model on a run's frozen rows, from where its last checkpoint left off.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished model, samples of its
answers. Every rank of a distributed training runs this; needs PyTorch, transformers, peft.
"""

import contextlib
import logging
import shutil
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import Subset
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.utils.logging import disable_progress_bar

from pairwright.schemas.errors import ConfigError, ModelError, StoreError, TrainingError
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.models.batches import is_out_of_memory
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.answer_questions import sample_answers
from pairwright.tasks.training.collate import Collator, ExampleRows
from pairwright.tasks.training.freeze_rows import FrozenRows, Needs
from pairwright.tasks.training.load_batches import Guarded, count_workers, find_batch, sound, start_server
from pairwright.tasks.training.load_model import choose_precision, load_processor, load_to_train
from pairwright.tasks.training.losses.objectives import OBJECTIVES
from pairwright.tasks.training.losses.rewards import TEXTS
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.preference_trainer import PreferenceTrainer, Setting
from pairwright.tasks.training.ranks import count_ranks, gather, own_rank, spread
from pairwright.tasks.training.references import open_reference
from pairwright.tasks.training.retriever.adversary import open_adversary
from pairwright.tasks.training.runs import FINISHING, HELD_OUT, RETRIEVER, MetricsFile, Run, publish_folder
from pairwright.tasks.training.save_checkpoints import NOT_SAVED, finish_model
from pairwright.tasks.training.score_answers import packs_well, score_answers
from pairwright.tasks.training.trainer_arguments import make_arguments
from pairwright.tasks.training.tune_model import computing, prepare_model
from pairwright.tasks.training.watch_training import Telling, Watcher, stoppable

log = logging.getLogger(__name__)
TRIED_ROWS = 8
"""On whose answers packing is tried; two with a rejected text are enough."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained, all of it prepared."""

    run: Run
    config: TrainConfig
    dataset: Folder
    start: Path
    """The model that the run starts from."""
    watcher: Watcher | None = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a training ended."""

    step: int
    steps: int
    measured: dict[str, float]
    """The last measurement on the held-out rows."""
    finished: bool
    """Whether there is a finished model; otherwise it was stopped, and has a checkpoint."""


def train_model(job: Job) -> Ended:
    """Train to the end, or until a signal.

    Raises:
        ConfigError: a setting does not go with how the processes were started.
        ModelError: the model or the checkpoint cannot be loaded.
        TrainingError: the loss is not finite, rows cannot be read, or a checkpoint cannot be saved.
    """
    trainer = make_trainer(job)
    _check_sharding(trainer)
    if count_ranks() > 1 and not trainer.is_sharded:
        rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=job.config.data.split)
        seldom = job.config.model.train_vision and not rows.all_show()  # a batch without images: nothing to see with
        trainer.args.ddp_find_unused_parameters = any(gather(seldom or leaves_unused(trainer)))

    def is_stopped() -> bool:
        return any(gather(trainer.stopping or trainer.is_stopping))

    with stoppable(trainer):
        try:
            trainer.fit(job.run.latest())
        except (TrainingError, RuntimeError, MemoryError):
            # The page shows how it came to that; who goes on reads them up to the checkpoint alone.
            if trainer.is_world_process_zero():
                with contextlib.suppress(StoreError):
                    trainer.setting.metrics.write()
            raise
        if not is_stopped():
            trainer.measure()
        if finished := not is_stopped():
            _finish(trainer, job)
    state, measured = trainer.state, trainer.setting.metrics.last(HELD_OUT)
    return Ended(step=state.global_step, steps=state.max_steps, measured=measured, finished=finished)


def make_trainer(job: Job) -> PreferenceTrainer:
    """Return a run's trainer, its model loaded."""
    config, run = job.config, job.run
    disable_progress_bar()  # of files that are read and written
    logging.getLogger("accelerate").setLevel(logging.WARNING)  # it tells each file of a checkpoint in parts
    processor = load_processor(job.start)
    if count_workers(config.data.dataloader_num_workers):
        start_server(processor)
    model = prepare_model(load_to_train(job.start, config), config)
    metrics, goal = MetricsFile(run.metrics), OBJECTIVES[config.objective]
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
        goal=goal,
        reference=open_reference(config, job.start, run.folder),
        adversary=adversary,
        metrics=metrics,
    )
    trainer = PreferenceTrainer(
        setting,
        model=model,
        args=make_arguments(run, config, choose_precision(config)),
        train_dataset=train_rows(job),
        eval_dataset=held_out_rows(job),
        data_collator=collator,
        processing_class=processor,
    )
    if job.watcher and trainer.is_world_process_zero():
        trainer.add_callback(Telling(job.watcher))
    return trainer


def train_rows(job: Job) -> Any:
    """Return the rows that are trained on."""
    config = job.config
    needs = OBJECTIVES[config.objective].needs_of(config)
    return _take(_rows(job, config.data.split, needs), config.data.max_train_rows, config)


def held_out_rows(job: Job) -> Any:
    """Return the rows that are measured on."""
    config = job.config
    needs = OBJECTIVES[config.objective].measures_of(config)
    return _take(_rows(job, config.data.eval_split, needs), config.data.max_eval_rows, config)


def _rows(job: Job, split: str, needs: Needs) -> ExampleRows:
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=split)
    return ExampleRows(rows, needs, job.config.model.max_pixels)


def _take(rows: Any, count: int, config: TrainConfig) -> Any:
    """Return so many rows, shuffled; 0: all."""
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(config.seed)
    return Subset(rows, torch.randperm(len(rows), generator=generator)[:count].tolist())


def _make_collator(job: Job, model: Any, processor: Any) -> Collator:
    """Return what makes batches: answers share their prompt where the model gives the same so.

    Raises:
        ConfigError: they are to share it, and the model gives something else.
    """
    config, why = job.config, ""
    collator = Collator(processor, config.model.max_length, late=config.adpo.samples * (config.objective == "adpo"))
    if config.model.shared_prompt == "never":
        return replace(collator, apart=True)
    if own_rank() == 0:
        dtype = choose_precision(config)
        rows = Guarded(_rows(job, config.data.split, OBJECTIVES[config.objective].measures_of(config)))
        first = [sound(rows[n]) for n in range(min(len(rows), TRIED_ROWS))]
        with computing(model.device, dtype):
            why = packs_well(model, collator, first, dtype=dtype)
    if (why := spread(why)) and config.model.shared_prompt == "always":
        raise ConfigError(f"model.shared_prompt always: {why}. Leave it at auto")
    if why:
        log.info("each answer gets a prompt of its own: %s", why)
    return replace(collator, apart=bool(why))


def leaves_unused(trainer: PreferenceTrainer) -> bool:
    """Return whether the first row leaves some trained weights unused, as towers do whose last layer nobody reads.

    DDP waits for every weight's gradient, unless it is told to look for those that get none, which costs time and warns
    where there are none. Costs a pass forwards and backwards, and draws nothing.

    Args:
        trainer: its model on its device, not wrapped yet.

    Raises:
        TrainingError: no row can be trained on.
    """
    model, device = cast("Any", trainer.model), trainer.args.device
    batch = find_batch(trainer.train_dataset, cast("Any", trainer.data_collator))
    dtype = choose_precision(trainer.setting.config)
    width = max(TEXTS, *(1 + answer.column for own in batch.answers for answer in own))
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), computing(device, dtype):
        scored = score_answers(model, pack_answers(batch, model, width=width, dtype=dtype))
    scored.logps.sum().backward()
    found = any(weight.requires_grad and weight.grad is None for weight in model.parameters())
    model.zero_grad(set_to_none=True)
    return found


def _finish(trainer: PreferenceTrainer, job: Job) -> None:
    """Write the finished model; its name says that the run is finished.

    Raises:
        TrainingError: the disk refuses; the last checkpoint is whole.
    """
    run, first = job.run, trainer.is_world_process_zero()
    if plugin := trainer.accelerator.state.fsdp_plugin if trainer.is_fsdp_enabled else None:
        plugin.set_state_dict_type("FULL_STATE_DICT")
    staged, problem = run.folder / FINISHING, ""
    try:
        if first:
            shutil.rmtree(staged, ignore_errors=True)
        trainer.save_model(str(staged))
        if trainer.is_deepspeed_enabled:
            unset_hf_deepspeed_config()  # else what is merged on one rank would be loaded in parts, by all
        if first:
            if trainer.setting.adversary:
                trainer.setting.adversary.publish(run.folder / RETRIEVER)
            finish_model(staged, job.start, job.config)
            sample_answers(trainer, run.folder)
            trainer.setting.metrics.write()
            publish_folder(staged, run.model)
            run.clean()
    except (*NOT_SAVED, ModelError) as error:  # the model that the run started from may be gone
        shutil.rmtree(staged, ignore_errors=True)
        problem = str(error) or type(error).__name__
    if problems := [one for one in gather(problem) if one]:
        raise TrainingError(
            f"{run.model}: cannot be saved: {problems[0]}; the last checkpoint, {run.latest()}, is whole. Make room, "
            "and go on with the same command"
        )


def _check_sharding(trainer: PreferenceTrainer) -> None:
    """Refuse now what would fail at the end.

    Raises:
        ConfigError: DeepSpeed is set up so that the whole model cannot be written.
    """
    plugin = getattr(trainer.accelerator.state, "deepspeed_plugin", None)
    if plugin is not None and plugin.zero_stage == 3 and not plugin.zero3_save_16bit_model:
        raise ConfigError(
            "DeepSpeed: zero_optimization.stage3_gather_16bit_weights_on_model_save must be true, so that the finished "
            "model can be written (accelerate: zero3_save_16bit_model)"
        )


@contextlib.contextmanager
def fitting(config: TrainConfig, run: Run) -> Generator[None]:
    """Turn what PyTorch says of memory that does not suffice into which settings need less.

    Raises:
        TrainingError: the memory did not suffice.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first = str(error).strip().partition("\n")[0] or type(error).__name__
        kept = f"; {run.folder} has a checkpoint and keeps its settings: give another --name" if run.latest() else ""
        raise TrainingError(f"out of memory: {first}. Less is needed with {_advise(config)}{kept}") from error


def _advise(config: TrainConfig) -> str:
    """Name the settings that help, first those that change nothing of what is learnt."""
    optimiser, found = config.optimiser, list[str]()
    half, odd = divmod(optimiser.per_device_train_batch_size, 2)
    size, twice = "optimiser.per_device_train_batch_size", 2 * optimiser.gradient_accumulation_steps
    if half:
        same = " (as many rows to a step)" if not odd else ""
        found.append(f"--set {size}={half} --set optimiser.gradient_accumulation_steps={twice}{same}")
    if config.objective != NAMC:
        found += [] if optimiser.gradient_checkpointing else ["--set optimiser.gradient_checkpointing=true"]
        found += [] if config.model.tuning == "lora" else ["--set model.tuning=lora"]
        found.append(f"smaller images (--set model.max_pixels={config.model.max_pixels // 2})")
    return ", or ".join(found) or "a smaller model alone: there is one row at a time already"
