"""Train a model on a run's frozen rows, from where its last checkpoint left off.

Reads the run's folder, the dataset's parts, the model; writes checkpoints, metrics, the finished model, samples of its
answers. Every rank of a distributed training runs this; needs PyTorch, transformers, peft.
"""

import contextlib
import logging
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from transformers.utils.logging import disable_progress_bar

from pairwright.schemas.errors import ConfigError, ModelError, StoreError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.check_packing import packs_well
from pairwright.tasks.training.collate import Collator, ExampleRows
from pairwright.tasks.training.find_unused import leaves_unused
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.load_batches import Guarded, count_workers, start_server
from pairwright.tasks.training.load_model import choose_precision, load_processor, load_to_train
from pairwright.tasks.training.losses.objectives import OBJECTIVES, Goal
from pairwright.tasks.training.losses.scored import TEXTS
from pairwright.tasks.training.metrics import HELD_OUT, MetricsFile
from pairwright.tasks.training.preference_trainer import PreferenceTrainer
from pairwright.tasks.training.ranks import count_ranks, gather, own_rank, spread
from pairwright.tasks.training.references import open_reference
from pairwright.tasks.training.retriever.material import FOLDER as RETRIEVER
from pairwright.tasks.training.retriever.open_adversary import open_adversary
from pairwright.tasks.training.runs import FINISHING, Run, publish_folder
from pairwright.tasks.training.sample_answers import sample_answers
from pairwright.tasks.training.save_checkpoints import NOT_SAVED
from pairwright.tasks.training.save_model import finish_model
from pairwright.tasks.training.step_batches import sound
from pairwright.tasks.training.stop_training import Stopping, stoppable
from pairwright.tasks.training.trainer_arguments import make_arguments, make_trackers
from pairwright.tasks.training.trainer_setting import Adversary, Setting
from pairwright.tasks.training.tune_model import computing, prepare_model
from pairwright.tasks.training.watch_training import Telling, Watcher

log = logging.getLogger(__name__)
TRIED_ROWS = 8
"""On whose answers packing is tried; two with a rejected text are enough."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Say what is trained, all of it prepared."""

    run: Run
    config: TrainConfig
    dataset: Folder
    start: Path
    """The model that the run starts from."""
    watcher: Watcher | None = None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Say how a training ended."""

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
        trainer.args.ddp_find_unused_parameters = _leaves_unused(trainer, job)
    if latest := job.run.latest():
        trainer.restore(latest)
    with stoppable(trainer):
        try:
            trainer.train(resume_from_checkpoint=str(latest) if latest else None)
        except (TrainingError, RuntimeError, MemoryError):
            # The page shows how it came to that; who goes on reads them up to the checkpoint alone.
            if trainer.is_world_process_zero():
                with contextlib.suppress(StoreError):
                    trainer.setting.metrics.write()
            raise
        if not _is_stopped(trainer):
            trainer.measure()
        if finished := not _is_stopped(trainer):
            _finish(trainer, job)
    state, measured = trainer.state, trainer.setting.metrics.last(HELD_OUT)
    return Ended(step=state.global_step, steps=state.max_steps, measured=measured, finished=finished)


def _leaves_unused(trainer: PreferenceTrainer, job: Job) -> bool:
    """Say whether there are steps in which some trained weights have no part: DDP has to know."""
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=job.config.data.split)
    seldom = job.config.model.train_vision and not rows.all_show()  # a batch without images: nothing to see with
    return any(gather(seldom or leaves_unused(trainer)))


def make_trainer(job: Job) -> PreferenceTrainer:
    """Return a run's trainer, its model loaded."""
    config, run = job.config, job.run
    disable_progress_bar()  # of files that are read and written
    logging.getLogger("accelerate").setLevel(logging.WARNING)  # it tells each file of a checkpoint in parts
    processor = load_processor(job.start)
    if count_workers(config.data.dataloader_num_workers):
        start_server(processor)
    dtype = choose_precision(config)
    model = prepare_model(load_to_train(job.start, config), config)
    steps = run.steps()
    metrics = MetricsFile(run.metrics)
    if steps:
        metrics.resume(steps[-1])
    collator = _collator(job, model, processor)
    setting = Setting(
        run=run,
        config=config,
        goal=OBJECTIVES[config.objective],
        reference=open_reference(config, job.start, run.folder),
        adversary=_adversary(job, collator),
        metrics=metrics,
    )
    trainer = PreferenceTrainer(
        setting,
        model=model,
        args=make_arguments(run, config, dtype),
        train_dataset=train_rows(job),
        eval_dataset=held_out_rows(job),
        data_collator=collator,
        processing_class=processor,
        callbacks=make_trackers(run, config, step=steps[-1] if steps else 0) if own_rank() == 0 else [],
    )
    trainer.add_callback(Stopping(trainer))
    if job.watcher and trainer.is_world_process_zero():
        trainer.add_callback(Telling(job.watcher))
    return trainer


def train_rows(job: Job) -> Any:
    """Return the rows that are trained on."""
    config = job.config
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=config.data.split)
    return _first(
        ExampleRows(rows, _goal(job).needs_of(config), config.model.max_pixels), config.data.max_train_rows, config
    )


def held_out_rows(job: Job) -> Any:
    """Return the rows that are measured on."""
    config = job.config
    return _first(_measured(job, config.data.eval_split), config.data.max_eval_rows, config)


def _measured(job: Job, split: str) -> ExampleRows:
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=split)
    return ExampleRows(rows, _goal(job).measures_of(job.config), job.config.model.max_pixels)


def _goal(job: Job) -> Goal:
    return OBJECTIVES[job.config.objective]


def _first(rows: Any, count: int, config: TrainConfig) -> Any:
    if not count or count >= len(rows):
        return rows
    generator = torch.Generator().manual_seed(config.seed)
    return Subset(rows, torch.randperm(len(rows), generator=generator)[:count].tolist())


def _adversary(job: Job, collator: Collator) -> Adversary | None:
    """Return who chooses negatives, for the objective that has them chosen."""
    if job.config.objective != "adpo":
        return None
    return open_adversary(
        job.run.folder / RETRIEVER,
        job.config,
        rows=job.run.rows,
        dataset=job.dataset,
        tokenize=lambda text: collator.answer(text, TEXTS).ids,
    )


def _collator(job: Job, model: Any, processor: Any) -> Collator:
    """Return what makes batches: answers share their prompt where the model gives the same so.

    Raises:
        ConfigError: they are to share it, and the model gives something else.
    """
    config = job.config
    late = config.adpo.samples if config.objective == "adpo" else 0
    collator = Collator(processor, config.model.max_length, late=late)
    if config.model.shared_prompt == "never":
        return replace(collator, apart=True)
    why = spread(_why_apart(job, model, collator) if own_rank() == 0 else "")
    if why and config.model.shared_prompt == "always":
        raise ConfigError(f"model.shared_prompt always: {why}. Leave it at auto")
    if why:
        log.info("each answer gets a prompt of its own: %s", why)
    return replace(collator, apart=bool(why))


def _why_apart(job: Job, model: Any, collator: Collator) -> str:
    rows, dtype = Guarded(_measured(job, job.config.data.split)), choose_precision(job.config)
    first = [sound(rows[n]) for n in range(min(len(rows), TRIED_ROWS))]
    with computing(model.device, dtype):
        return packs_well(model, collator, first, dtype=dtype)


def _is_stopped(trainer: PreferenceTrainer) -> bool:
    return any(gather(trainer.stopping or trainer.is_stopping))


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
