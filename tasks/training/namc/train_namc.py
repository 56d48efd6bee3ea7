"""Train a NAMC on a run's frozen rows, from where its last checkpoint left off.

Reads the run's folder and the dataset's parts; writes checkpoints, metrics, the finished model, samples, and in
``answers/`` what it says of the held-out rows beside what they are said to show, as ``pairwright evaluate captions``
reads it. A stopped run ends with the same weights as one that was not: order and masks follow from seed, row and epoch.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.metrics import HELD_OUT, TRAIN, MetricsFile, Window
from pairwright.tasks.training.namc.learn import Learner
from pairwright.tasks.training.namc.material import Batches, Material, Order
from pairwright.tasks.training.namc.open_run import drop_prepared, open_run
from pairwright.tasks.training.namc.saved import load_weights, save_captioner
from pairwright.tasks.training.report.samples import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import FINISHING, SAVING, STEP, publish_folder
from pairwright.tasks.training.save_checkpoints import NOT_SAVED, Saving, reading
from pairwright.tasks.training.stop_training import stoppable
from pairwright.tasks.training.train_model import Ended, Job

OPTIMISER = "optimiser.pt"
SAMPLES = 8


@dataclass
class Training:
    """Be a training that is under way; ``stopping`` is set by a signal."""

    job: Job
    learner: Learner
    batches: Batches
    rows: int
    held_out: Batches
    measured: Material
    metrics: MetricsFile
    stopping: bool = False

    @property
    def steps(self) -> int:
        """Return how many steps there are."""
        return self.learner.steps


def check_settings(config: TrainConfig) -> None:
    """Refuse what this training does not have.

    Raises:
        ConfigError: names the setting.
    """
    if config.negatives_from:
        raise ConfigError("negatives_from: NAMC learns from chosen texts alone")
    if config.optimiser.precision == "fp16":
        raise ConfigError("optimiser.precision: NAMC is trained in bf16 or fp32")
    if config.output.report_to:
        raise ConfigError("output.report_to: a training of NAMC has its own page only")


def train_namc(job: Job) -> Ended:
    """Train to the end, or until a signal.

    Raises:
        ConfigError: no row can be learnt from.
        ModelError: the start or the checkpoint cannot be loaded.
        TrainingError: the loss is not finite, or the disk refuses.
    """
    training = _begin(job)
    with stoppable(training):
        step = _run(training)
    finished = step >= training.steps
    if finished:
        _finish(training)
    return Ended(step=step, steps=training.steps, measured=training.metrics.last(HELD_OUT), finished=finished)


def _begin(job: Job) -> Training:
    run, config, opened = job.run, job.config, open_run(job)
    captioner = opened.captioner
    captioner.model.to(choose_device())
    learner = Learner(captioner, config, _count_steps(config, len(opened.material)))
    metrics = MetricsFile(run.metrics)
    if latest := run.latest():
        load_weights(captioner.model, latest)
        with reading(latest / OPTIMISER):
            learner.optimiser.load_state_dict(torch.load(latest / OPTIMISER, map_location="cpu", weights_only=True))
        metrics.resume(run.steps()[-1])
    rows = len(opened.material)
    return Training(job, learner, opened.batches, rows, opened.held_out, opened.measured, metrics)


def _count_steps(config: TrainConfig, rows: int) -> int:
    return config.optimiser.max_steps or max(1, round(config.optimiser.num_train_epochs * _per_epoch(config, rows)))


def _per_epoch(config: TrainConfig, rows: int) -> int:
    return -(-rows // _per_step(config))


def _per_step(config: TrainConfig) -> int:
    return config.optimiser.per_device_train_batch_size * config.optimiser.gradient_accumulation_steps


def _run(training: Training) -> int:
    """Do the steps that are left; return the last one that was done."""
    job, config = training.job, training.job.config
    done = job.run.steps()[-1] if job.run.steps() else 0
    if job.watcher:
        job.watcher.begin(done, training.steps)
    window, since, rows = Window(), time.monotonic(), 0
    orders = _orders(config, training.rows, done, training.steps)
    for (step, epoch, some), (batch, identity) in training.batches.ahead(orders):
        seeds = training.batches.seeds(some, int(epoch))
        torch.manual_seed(int(np.random.default_rng([config.seed, step]).integers(2**63)))  # of dropout
        window.add(training.learner.step(batch, identity, seeds=seeds, number=step), weight=len(some))
        rows, done = rows + len(some), step + 1
        if job.watcher:
            job.watcher.advance(done)
        if done % config.output.logging_steps == 0 or done == training.steps:
            speed = {"rows per second": rows / max(time.monotonic() - since, 1e-9)}
            _log(training, done, epoch, TRAIN, window.take() | speed)
            since, rows = time.monotonic(), 0
        if (every := config.output.eval_steps) and done % every == 0 and done < training.steps:
            _measure(training, done, epoch)
        if done % config.output.save_steps == 0 or done == training.steps or training.stopping:
            if done == training.steps:
                _measure(training, done, epoch)
            _save(training, done)
        if training.stopping:
            break
    return done


def _orders(config: TrainConfig, rows: int, done: int, steps: int) -> Iterator[Order]:
    """Yield each step that is left."""
    per_epoch, batch = _per_epoch(config, rows), _per_step(config)
    for step in range(done, steps):
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng([config.seed, epoch]).permutation(rows)
        yield step, step / per_epoch, order[place * batch : (place + 1) * batch].tolist()


def _measure(training: Training, step: int, epoch: float) -> None:
    if found := training.learner.measure(training.held_out, len(training.measured)):
        _log(training, step, epoch, HELD_OUT, found)


def _log(training: Training, step: int, epoch: float, split: str, values: dict[str, float]) -> None:
    training.metrics.add(step, epoch, split, values)
    training.metrics.write()
    if training.job.watcher:
        training.job.watcher.logged(step, split, values)


def _save(training: Training, step: int) -> None:
    """Write a checkpoint, whole or not at all.

    Raises:
        TrainingError: the disk refuses.
    """
    run = training.job.run
    saving = Saving(run, f"{STEP}{step}")
    place = run.folder / SAVING / f"{STEP}{step}"

    def write() -> None:
        saving.begin()
        save_captioner(training.learner.captioner, place)
        torch.save(training.learner.optimiser.state_dict(), place / OPTIMISER)

    saving.agree(write)
    saving.agree(lambda: saving.publish(training.job.config.output.save_total_limit))


def _finish(training: Training) -> None:
    """Write what is left of a finished run; the model's name says that it is finished.

    Raises:
        TrainingError: the disk refuses; the last checkpoint is whole.
    """
    run, staged = training.job.run, training.job.run.folder / FINISHING
    said = training.learner.describe(training.measured, range(len(training.measured)))
    try:
        told = zip(training.measured.texts, said, strict=True)
        write_answers(run.answers, ((text.key, answer, text.chosen) for text, answer in told))
        write_samples(run.folder, _samples(training, said))
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        save_captioner(training.learner.captioner, staged)
        publish_folder(staged, run.model)
        drop_prepared(run)
    except NOT_SAVED as error:
        shutil.rmtree(staged, ignore_errors=True)
        raise TrainingError(
            f"{run.model}: cannot be saved: {error}; the last checkpoint, {run.latest()}, is whole. Make room, and go "
            "on with the same command"
        ) from error


def _samples(training: Training, said: Sequence[str]) -> Iterator[Sample]:
    job = training.job
    rows = FrozenRows(folder=job.dataset, file=str(job.run.rows), split=job.config.data.eval_split)
    places = {key: place for place, key in enumerate(rows.keys())}
    for text, answer in zip(training.measured.texts[:SAMPLES], said, strict=False):
        row = rows.read(places[text.key])
        prompt = "\n".join(turn.text for turn in row.prompt)
        yield Sample(
            key=row.key, prompt=prompt, images=row.images, reference=row.chosen, answer=answer, rejected=row.rejected
        )
