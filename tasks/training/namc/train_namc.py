"""Train a NAMC on a run's frozen rows, from where its last checkpoint left off.

Reads the run's folder and the dataset's parts; writes checkpoints, metrics, the finished model, samples, and in
``answers/`` what it says of the held-out rows beside what they are said to show, as ``pairwright evaluate captions``
reads it. A stopped run ends with the same weights as one that was not: order and masks follow from seed, row and epoch.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pairwright.schemas.errors import ConfigError, ModelError, TrainingError
from pairwright.schemas.namc import PAPER, DualEncoderConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc_places import CLIP, clip_numbers, find_weights
from pairwright.tasks.models.namc_words import ClipWords, bert_words, learnt_words, saved_words
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows, count_reasons
from pairwright.tasks.training.namc.batches import NO_HALVES, Batches, Order, Pictures, read_rows, small_pixels
from pairwright.tasks.training.namc.captioner import (
    Captioner,
    load_captioner,
    load_weights,
    make_captioner,
    save_captioner,
)
from pairwright.tasks.training.namc.frozen import Frozen, freeze_images, open_frozen
from pairwright.tasks.training.namc.learn import Learner
from pairwright.tasks.training.report.samples import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import (
    FINISHING,
    HELD_OUT,
    PLACES,
    SAVING,
    STEP,
    TRAIN,
    VOCABULARY,
    MetricsFile,
    Run,
    Window,
    append_refused,
    publish_folder,
)
from pairwright.tasks.training.save_checkpoints import NOT_SAVED, Saving, reading
from pairwright.tasks.training.train_model import Ended, Job
from pairwright.tasks.training.watch_training import stoppable

OPTIMISER = "optimiser.pt"
SAMPLES = 8
VOCABULARY_SIZE = 1_000
"""Maximum tokens of the small decoder's vocabulary."""
TOKENIZER = "ViT-B-32"
"""Whose tokenizer is CLIP's own; open_clip brings it."""


@dataclass
class Training:
    """A training that is under way; ``stopping`` is set by a signal."""

    job: Job
    learner: Learner
    batches: Batches
    held_out: Batches
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


def freeze_run(run: Run, config: TrainConfig, dataset: Folder) -> Frozen:
    """Have a run's texts and crops in its folder, and look whether there is a row to learn from.

    Raises:
        ConfigError: no row of the split to train on will do, for these reasons.
        StoreError: a row cannot be read, or the disk refuses.
    """
    splits = dict.fromkeys(filter(None, (config.data.split, config.data.eval_split)))
    rows = [FrozenRows(folder=dataset, file=str(run.rows), split=split) for split in splits]
    freeze_images(rows, run.folder / PLACES, config.namc)
    frozen = open_frozen(run.folder / PLACES)
    texts, _, refused = read_rows(frozen, config.data.split, halves=config.namc.noise_enabled)
    if not texts:
        reasons = count_reasons(refused)
        advice = ". Any text will do with: --set namc.noise_enabled=false" if NO_HALVES in reasons else ""
        said = ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items()) or "it has none"
        raise ConfigError(f"{dataset.url}: NAMC can learn from no row of split {config.data.split!r}: {said}{advice}")
    return frozen


def open_run(job: Job) -> tuple[Captioner, Batches, Batches]:
    """Return the model that a run begins as, batches of the rows that it learns from, and of the held-out ones.

    Raises:
        ConfigError: no row can be learnt from.
        ModelError: a model is missing, or another than the run began with.
        StoreError: a row cannot be read, or the disk refuses.
    """
    config, data = job.config.namc, job.config.data
    frozen = freeze_run(job.run, job.config, job.dataset)
    captioner = _open_captioner(job, frozen)
    captioner.model.to(choose_device())
    noise = captioner.model.noise
    pixels = None if noise is None else clip_numbers(noise.clip) if config.size == PAPER else small_pixels
    clip = config.clip if config.size == PAPER else DualEncoderConfig(model=TOKENIZER)
    splitter = ClipWords(create_tokenizer(clip, field=CLIP))

    def make(split: str, limit: int, *, halves: bool) -> Batches:
        texts, sides, refused = read_rows(frozen, split, halves=halves, limit=limit, seed=job.config.seed)
        append_refused(job.run.refused, refused)
        pictures, length = Pictures(frozen, sides, pixels), captioner.model.sizes.length
        return Batches(texts, pictures, clip=splitter, words=captioner.words, length=length)

    batches = make(data.split, data.max_train_rows, halves=config.noise_enabled)
    if not len(batches):
        raise ConfigError(f"{job.run.folder}: no row can be learnt from; {job.run.refused} says why")
    if noise is not None and config.relevance == "start":
        batches.relate(noise.eval())
    return captioner, batches, make(data.eval_split, data.max_eval_rows, halves=False)


def _open_captioner(job: Job, frozen: Frozen) -> Captioner:
    config, run = job.config.namc, job.run
    if job.config.start:
        captioner = load_captioner(job.start, config)
    else:
        if not (kept := run.folder / VOCABULARY).exists():  # made once, and kept
            texts = [row["chosen"] for row in frozen.rows if row["split"] == job.config.data.split]
            large = config.size == PAPER
            words = bert_words(find_weights(config.vocabulary)) if large else learnt_words(texts, size=VOCABULARY_SIZE)
            Folder(str(run.folder)).write(VOCABULARY, words.as_json().encode())
        captioner = make_captioner(saved_words(kept), config, frozen.widths, seed=job.config.seed)
    sizes, own = captioner.model.sizes, frozen.widths
    if own and (sizes.features != own["grids"] or sizes.codes != own.get("codes", sizes.codes)):
        raise ModelError(
            f"--from: {job.start}: reads {sizes.features} features and tells {sizes.codes} codes per place, and here "
            f"are {own}: name its own models (namc.cnn, namc.vqgan)"
        )
    cnn = config.cnn if config.size == PAPER else None
    return replace(captioner, cnn=cnn, length=config.max_new_tokens, beams=config.num_beams)


def _begin(job: Job) -> Training:
    run, config = job.run, job.config
    captioner, batches, held_out = open_run(job)
    epochs = config.optimiser.num_train_epochs
    steps = config.optimiser.max_steps or max(1, round(epochs * _per_epoch(config, len(batches))))
    learner, metrics = Learner(captioner, config, steps), MetricsFile(run.metrics)
    if latest := run.latest():
        load_weights(captioner.model, latest)
        with reading(latest / OPTIMISER):
            learner.optimiser.load_state_dict(torch.load(latest / OPTIMISER, map_location="cpu", weights_only=True))
        metrics.resume(run.steps()[-1])
    return Training(job, learner, batches, held_out, metrics)


def _per_epoch(config: TrainConfig, rows: int) -> int:
    return -(-rows // _per_step(config))


def _per_step(config: TrainConfig) -> int:
    return config.optimiser.per_device_train_batch_size * config.optimiser.gradient_accumulation_steps


def _run(training: Training) -> int:
    """Do the steps that are left; return the last one that was done."""
    job, config, output = training.job, training.job.config, training.job.config.output
    done = job.run.steps()[-1] if job.run.steps() else 0
    if job.watcher:
        job.watcher.begin(done, training.steps)
    window, since, rows = Window(), time.monotonic(), 0
    orders = _orders(config, len(training.batches), done, training.steps)
    for (step, epoch, some), (batch, identity) in training.batches.ahead(orders):
        seeds = training.batches.seeds(some, int(epoch))
        torch.manual_seed(int(np.random.default_rng([config.seed, step]).integers(2**63)))  # of dropout
        window.add(training.learner.step(batch, identity, seeds=seeds, number=step), weight=len(some))
        rows, done = rows + len(some), step + 1
        last = done == training.steps
        if job.watcher:
            job.watcher.advance(done)
        if done % output.logging_steps == 0 or last:
            speed = {"rows per second": rows / max(time.monotonic() - since, 1e-9)}
            _log(training, done, epoch, TRAIN, window.take() | speed)
            since, rows = time.monotonic(), 0
        if last or (output.eval_steps and done % output.eval_steps == 0):
            _log(training, done, epoch, HELD_OUT, training.learner.measure(training.held_out))
        if done % output.save_steps == 0 or last or training.stopping:
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


def _log(training: Training, step: int, epoch: float, split: str, values: dict[str, float]) -> None:
    if not values:
        return
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
    run, staged, texts = training.job.run, training.job.run.folder / FINISHING, training.held_out.texts
    said = training.learner.describe(training.held_out)
    try:
        write_answers(run.answers, [(text.key, one, text.chosen) for text, one in zip(texts, said, strict=True)])
        write_samples(run.folder, _samples(training, said))
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        save_captioner(training.learner.captioner, staged)
        publish_folder(staged, run.model)
        shutil.rmtree(run.folder / PLACES, ignore_errors=True)
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
    for text, answer in zip(training.held_out.texts[:SAMPLES], said, strict=False):
        row = rows.read(places[text.key])
        prompt = "\n".join(turn.text for turn in row.prompt)
        yield Sample(
            key=row.key, prompt=prompt, images=row.images, reference=row.chosen, answer=answer, rejected=row.rejected
        )
