"""Train NAMC on a run's frozen rows, from its last checkpoint.

Reads the run's folder and the dataset's parts; writes checkpoints, metrics, the finished model,
samples, and in ``answers/`` its descriptions of held-out rows beside the references, for
``pairwright evaluate captions``. Order, masks and dropout follow from seed and step, so that a
resumed run ends with the same weights.

The loss is the sum of three (paper 001, Eq. 2). Adam has two learning rates with cosine decay: for
reconstruction and description to a third (published: 3e-4 to 1e-4), for the noise module a third of
that, to a tenth (1e-4 to 1e-5). A step's rows pass through the model
``optimiser.per_device_train_batch_size`` at a time; alignment contrasts the rows of one such pass:
the paper's 512 only where so many fit. One process trains.
"""

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from pairwright.schemas.errors import ConfigError, ModelError, TrainingError
from pairwright.schemas.namc_config import PAPER, DualEncoderConfig
from pairwright.schemas.training import OptimiserConfig, TrainConfig
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import Described
from pairwright.tasks.models.namc_places import CLIP, CROP, clip_numbers, find_weights, join_patches
from pairwright.tasks.models.namc_words import (
    ClipWords,
    DecoderWords,
    bert_words,
    learnt_words,
    saved_words,
)
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.training import runs
from pairwright.tasks.training.freeze_rows import PAIR, FrozenRows, Refused, count_reasons
from pairwright.tasks.training.load_model import choose_precision, computing
from pairwright.tasks.training.namc import captioner as saved
from pairwright.tasks.training.namc.captioner import Captioner
from pairwright.tasks.training.namc.feature_tables import open_copies
from pairwright.tasks.training.namc.text_batches import (
    NO_HALVES,
    NOT_SEEN,
    Text,
    TextBatches,
    read_small,
    read_texts,
)
from pairwright.tasks.training.ranks import count_ranks, stoppable
from pairwright.tasks.training.report.write_run_page import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import HELD_OUT, PLACES, TRAIN, MetricsFile, Window
from pairwright.tasks.training.save_checkpoints import Saving
from pairwright.tasks.training.train_model import Ended, Job, find_rows
from pairwright.tasks.training.write_model_card import write_model_card

OPTIMISER = "optimiser.pt"
SAMPLES = 8
RATE = 1e-3  # default learning rate of the small model; the paper's is 3e-4
FLOOR, NOISE_SHARE, NOISE_FLOOR = 1 / 3, 1 / 3, 1 / 10
AT_ONCE = 64  # held-out rows per batch
VOCABULARY_SIZE = 1_000  # maximum tokens of the small decoder's vocabulary
TOKENIZER = "ViT-B-32"  # a model with CLIP's own tokenizer, which open_clip includes


def check_settings(config: TrainConfig) -> None:
    """Refuse settings that this training does not support."""
    if count_ranks() > 1:
        raise ConfigError(
            "NAMC is trained by one process: start it with `pairwright train`, without a launcher"
        )
    if (
        config.optimiser.optim != OptimiserConfig().optim
        or config.data.group_by_length
        or config.output.report_to
    ):
        raise ConfigError(
            "optimiser.optim, data.group_by_length, output.report_to: not supported by NAMC"
        )


def train_namc(job: Job) -> Ended:
    """Train to the end, or until a signal."""
    training = Training(job)
    with stoppable(training):
        step = training.run()
    if finished := step >= training.steps:
        training.finish()
    return Ended(
        step=step, steps=training.steps, measured=training.metrics.last(HELD_OUT), finished=finished
    )


def find_texts(job: Job, *, held_out: bool = False) -> tuple[FrozenRows, list[Text], list[Refused]]:
    """Return the training or held-out rows, their texts, and the rows refused."""
    data, noise = job.config.data, job.config.namc.noise_enabled
    split, limit = (
        (data.eval_split, data.max_eval_rows) if held_out else (data.split, data.max_train_rows)
    )
    rows = find_rows(job, split)
    texts, refused = read_texts(
        rows, halves=noise and not held_out, limit=limit, seed=job.config.seed
    )
    if not (texts or held_out):
        reasons = count_reasons(refused)
        advice = (
            ". To train on any text: --set namc.noise_enabled=false" if NO_HALVES in reasons else ""
        )
        said = (
            ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())
            or "it has no rows"
        )
        raise ConfigError(
            f"{job.dataset.url}: no row of split {split!r} can be trained on: {said}{advice}"
        )
    return rows, texts, refused


def open_captioner(job: Job) -> Captioner:
    """Return a run's initial model."""
    config = job.config.namc
    widths = open_copies(job.run.folder / PLACES).widths if config.size == PAPER else {}
    if not job.config.start:
        return saved.make_captioner(_make_words(job), config, widths, seed=job.config.seed)
    captioner = saved.load_captioner(job.start, config)
    sizes = captioner.model.sizes
    if widths and (
        sizes.features != widths["grids"] or sizes.codes != widths.get("codes", sizes.codes)
    ):
        raise ModelError(
            f"--from: {job.start}: has {sizes.features} features and {sizes.codes} codes per place, the tables "
            f"{widths}: set namc.cnn and namc.vqgan to its own models"
        )
    return replace(
        captioner, cnn=config.cnn if config.size == PAPER else None, length=config.max_new_tokens
    )


def _make_words(job: Job) -> DecoderWords:
    kept = job.run.folder / runs.VOCABULARY
    if not kept.exists():
        if job.config.namc.size == PAPER:
            words = bert_words(find_weights(job.config.namc.vocabulary))
        else:
            rows = find_rows(job, job.config.data.split).read_texts()
            texts = (row.description or row.chosen for row in rows)
            words = learnt_words(texts, size=VOCABULARY_SIZE)
        Folder(str(job.run.folder)).write(runs.VOCABULARY, words.as_json().encode())
    return saved_words(kept)


def open_batches(job: Job, captioner: Captioner, *, held_out: bool = False) -> TextBatches:
    """Return batches of the training rows, with inputs for masking, or of the held-out ones."""
    config, noise = job.config.namc, None if held_out else captioner.model.noise
    rows, texts, refused = find_texts(job, held_out=held_out)
    paper = config.size == PAPER
    copies = open_copies(job.run.folder / PLACES) if paper else read_small(rows, texts)
    seen = [copies.images.keys() >= set(text.images) for text in texts]
    known = [text for text, both in zip(texts, seen, strict=True) if both]
    refused += [
        Refused(key=text.key, reason=NOT_SEEN)
        for text, both in zip(texts, seen, strict=True)
        if not both
    ]
    runs.append_refused(job.run.refused, refused)
    if not (known or held_out):
        raise ConfigError(
            f"{job.run.folder}: no row can be trained on; see the reasons in {job.run.refused}"
        )
    show: Callable[[Sequence[Text], Tensor], Tensor] | None = None
    if noise:
        show = (
            partial(_clip_pixels, rows, clip_numbers(noise.clip))
            if paper
            else lambda _, found: join_patches(found)
        )
    tokenizer = create_tokenizer(
        config.clip if paper else DualEncoderConfig(model=TOKENIZER), field=CLIP
    )
    length = captioner.model.sizes.length
    return TextBatches(
        known, copies, clip=ClipWords(tokenizer), words=captioner.words, length=length, show=show
    )


def _clip_pixels(
    rows: FrozenRows, numbers: Callable[[Tensor], Tensor], texts: Sequence[Text], _features: Tensor
) -> Tensor:
    def crop(text: Text) -> list[NDArray[np.uint8]]:
        return [CROP(decode_rgb(data)) for data in rows.read(text.place).images]

    with ThreadPoolExecutor(count_cores()) as threads:
        crops = [one for both in threads.map(crop, texts) for one in both]
    return numbers(torch.from_numpy(np.stack(crops))).unflatten(0, (-1, PAIR))


class Learner:
    """Model and optimiser in training for ``steps`` steps."""

    def __init__(self, captioner: Captioner, config: TrainConfig, steps: int) -> None:
        self.captioner, self.model, self.config, self.steps = (
            captioner,
            captioner.model,
            config,
            steps,
        )
        model, rate = self.model, config.optimiser.learning_rate or RATE
        own = [*model.encoder.parameters(), *model.describer.parameters()]
        groups: list[dict[str, Any]] = [{"params": own, "top": rate, "floor": FLOOR}]
        if model.noise is not None:
            noise = list(model.noise.parameters())
            groups.append({"params": noise, "top": rate * NOISE_SHARE, "floor": NOISE_FLOOR})
        # Fused: a seventh of the time on a CPU, where most weights are rows of CLIP's vocabulary.
        self.optimiser = torch.optim.Adam(groups, lr=rate, fused=True)

    def step(self, batches: Iterable[Described], *, number: int, rows: int) -> dict[str, float]:
        """Train on batches of ``rows`` rows in all, as step ``number`` (from 0); return the metrics."""
        torch.manual_seed(
            int(np.random.default_rng([self.config.seed, number]).integers(2**63))
        )  # masks and dropout
        self.model.train()
        self.optimiser.zero_grad()
        window = Window()
        for batch in batches:
            loss, values = self.losses(batch.to(self.captioner.device))
            (loss * (len(batch.written) / rows)).backward()
            window.add({"loss": loss.item()} | values, weight=len(batch.written))
        measured, groups = window.take(), self.optimiser.param_groups
        for group in groups:
            group["lr"] = group["top"] * falling(number / self.steps, group["floor"])
        # Per group: gradients of cosines / 0.02 are hundreds of times those of the other losses.
        norms = [
            clip_grad_norm_(group["params"], self.config.optimiser.max_grad_norm).item()
            for group in groups
        ]
        for what, value in (
            ("the loss", measured["loss"]),
            ("the norm of the gradients", sum(norms)),
        ):
            if not math.isfinite(value):  # before the weights become NaN
                raise TrainingError(
                    f"step {number + 1}: {what} is {value}; a lower optimiser.learning_rate may help"
                )
        self.optimiser.step()
        measured |= zip(("grad_norm", "grad_norm/noise"), norms, strict=False)
        return measured | {"learning_rate": groups[0]["lr"]}

    def losses(self, batch: Described) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch; with masks also each summed loss, and the masked shares."""
        words = self.captioner.words
        with computing(self.captioner.device, choose_precision(self.config)):
            if self.model.noise is None:
                return self.model(batch.features, batch.written, pad=words.pad), {}
            losses, masked = self.model.pretrain(
                batch, self.config.namc, pad=words.pad, mask=words.mask
            )
        values = {f"loss/{name}": loss.item() for name, loss in losses.items()}
        values |= {f"masked/{name}": share.item() for name, share in masked.items()}
        return torch.stack(list(losses.values())).sum(), values

    @torch.no_grad()
    def measure(self, held_out: TextBatches) -> dict[str, float]:
        """Return the mean loss per token of describing held-out rows, unmasked."""
        model, pad = self.model.eval(), self.captioner.words.pad
        total, count = 0.0, 0
        for batch in map(held_out.make, _chunks(held_out)):
            own = batch.to(self.captioner.device)
            tokens = int((own.written[:, 1:] != pad).sum())
            with computing(self.captioner.device, choose_precision(self.config)):
                total += model(own.features, own.written, pad=pad).item() * tokens
            count += tokens
        return (
            {"loss" if model.noise is None else "loss/description": total / count} if count else {}
        )

    def describe(self, held_out: TextBatches) -> list[str]:
        """Return the model's descriptions of all pairs."""
        return [
            text
            for rows in _chunks(held_out)
            for text in self.captioner.write(held_out.features(rows))
        ]


def _chunks(batches: TextBatches) -> list[range]:
    return [
        range(start, min(start + AT_ONCE, len(batches)))
        for start in range(0, len(batches), AT_ONCE)
    ]


def falling(done: float, floor: float) -> float:
    """Return the factor of a learning rate at a share ``done`` of the steps: a cosine from 1 to ``floor``."""
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2


class Training:
    """Training of a run; ``stopping`` is set by a signal."""

    def __init__(self, job: Job) -> None:
        self.job, self.config, self.stopping = job, job.config, False
        captioner, optimiser = open_captioner(job), job.config.optimiser
        captioner.model.to(choose_device())
        self.batches, self.held_out = (
            open_batches(job, captioner, held_out=one) for one in (False, True)
        )
        self._batch = optimiser.per_device_train_batch_size
        self._per_step = self._batch * optimiser.gradient_accumulation_steps
        self._per_epoch = math.ceil(len(self.batches) / self._per_step)
        self.steps = optimiser.max_steps or max(
            1, round(optimiser.num_train_epochs * self._per_epoch)
        )
        self.learner, self.metrics = (
            Learner(captioner, job.config, self.steps),
            MetricsFile(job.run.metrics),
        )
        if latest := job.run.latest():
            saved.load_weights(captioner.model, latest)
            state = torch.load(latest / OPTIMISER, map_location="cpu", weights_only=True)
            self.learner.optimiser.load_state_dict(state)
            self.metrics.resume(job.run.steps()[-1])

    def run(self) -> int:
        """Do the remaining steps; return the last one done."""
        job, output, window = self.job, self.config.output, Window()
        begun = done = job.run.steps()[-1] if job.run.steps() else 0
        if job.watcher:
            job.watcher.begin(begun, self.steps)
        ahead = self.batches.ahead(
            part for step in range(begun, self.steps) for part in self._parts(step)
        )
        since, rows = time.monotonic(), 0
        for step in range(begun, self.steps):
            parts = self._parts(step)
            count = sum(map(len, parts))
            window.add(
                self.learner.step(islice(ahead, len(parts)), number=step, rows=count), weight=count
            )
            rows, done, epoch = rows + count, step + 1, step / self._per_epoch
            last = done == self.steps
            if job.watcher:
                job.watcher.advance(done)
            if done % output.logging_steps == 0 or last:
                speed = {"rows per second": rows / max(time.monotonic() - since, 1e-9)}
                self._log(done, epoch, TRAIN, window.take() | speed)
                since, rows = time.monotonic(), 0
            if last or (output.eval_steps and done % output.eval_steps == 0):
                self._log(done, epoch, HELD_OUT, self.learner.measure(self.held_out))
            if done % output.save_steps == 0 or last or self.stopping:
                self._save(done)
            if self.stopping:
                break
        return done

    def _parts(self, step: int) -> list[list[int]]:
        """Return a step's rows, one list per pass through the model."""
        epoch, place = divmod(step, self._per_epoch)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.batches))
        rows = order[place * self._per_step : (place + 1) * self._per_step]
        return [
            rows[start : start + self._batch].tolist() for start in range(0, len(rows), self._batch)
        ]

    def _log(self, step: int, epoch: float, split: str, values: dict[str, float]) -> None:
        if values:
            self.metrics.add(step, epoch, split, values)
            self.metrics.write()
            if self.job.watcher:
                self.job.watcher.logged(step, split, values)

    def _save(self, step: int) -> None:
        saving = Saving(self.job.run, f"{runs.STEP}{step}")

        def write() -> None:
            saving.begin()
            saved.save_captioner(self.learner.captioner, saving.staged)
            torch.save(self.learner.optimiser.state_dict(), saving.staged / OPTIMISER)
            saving.publish(self.config.output.save_total_limit)

        saving.agree(write)

    def finish(self) -> None:
        """Write the results of a finished run; the model comes last and marks it as finished."""
        run, staged, texts = self.job.run, self.job.run.folder / runs.FINISHING, self.held_out.texts
        said = self.learner.describe(self.held_out)

        def write() -> None:
            write_answers(
                run.answers,
                [(text.key, one, text.chosen) for text, one in zip(texts, said, strict=True)],
            )
            write_samples(run.folder, self._samples(said))
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            saved.save_captioner(self.learner.captioner, staged)
            rows = find_rows(self.job, self.config.data.split)
            write_model_card(staged, run, config=self.config, rows=rows, metrics=self.metrics)
            runs.publish_folder(staged, run.model)
            run.clean()

        Saving(run, run.model.name).agree(write)

    def _samples(self, said: list[str]) -> Iterator[Sample]:
        rows = find_rows(self.job, self.config.data.eval_split)
        for text, answer in zip(self.held_out.texts[:SAMPLES], said, strict=False):
            row = rows.read(text.place)
            yield Sample(
                key=row.key,
                prompt="\n".join(turn.text for turn in row.prompt),
                images=row.images,
                reference=text.chosen,
                answer=answer,
                rejected=row.rejected,
            )
