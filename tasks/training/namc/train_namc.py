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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
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
from pairwright.schemas.training import TrainConfig
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
from pairwright.tasks.training.freeze_rows import (
    PAIR,
    FrozenRows,
    Refused,
    count_reasons,
    list_reasons,
)
from pairwright.tasks.training.load_model import choose_precision, computing
from pairwright.tasks.training.namc import captioner as captioners
from pairwright.tasks.training.namc.captioner import Captioner
from pairwright.tasks.training.namc.feature_tables import open_copies
from pairwright.tasks.training.namc.text_batches import (
    NO_HALVES,
    NOT_SEEN,
    Text,
    TextBatches,
    collect_texts,
    read_small,
)
from pairwright.tasks.training.objective import Ended, Job
from pairwright.tasks.training.ranks import stoppable
from pairwright.tasks.training.report.write_run_page import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import HELD_OUT, PLACES, TRAIN, MetricsFile, Window
from pairwright.tasks.training.save_checkpoints import Saving
from pairwright.tasks.training.write_model_card import CardModel, write_model_card

OPTIMISER = "optimiser.pt"
SAMPLES = 8
RATE = 1e-3  # default learning rate of the small model; the paper's is 3e-4
FLOOR, NOISE_SHARE, NOISE_FLOOR = 1 / 3, 1 / 3, 1 / 10
AT_ONCE = 64  # held-out rows per batch
VOCABULARY_SIZE = 1_000  # maximum tokens of the small decoder's vocabulary
TOKENIZER = "ViT-B-32"  # a model with CLIP's own tokenizer, which open_clip includes


def train_namc(job: Job) -> Ended:
    """Train to the end, or until a signal."""
    training = Training(job)
    with stoppable(training):
        step = training.run_steps()
    finished = step >= training.steps
    if finished:
        training.save_results()
    return Ended(
        step=step, steps=training.steps, measured=training.metrics.last(HELD_OUT), finished=finished
    )


def find_texts(job: Job, *, held_out: bool = False) -> tuple[FrozenRows, list[Text], list[Refused]]:
    """Return the training or held-out rows, their texts, and the rows refused."""
    data = job.config.data
    split = data.split
    limit = data.max_train_rows
    if held_out:
        split = data.eval_split
        limit = data.max_eval_rows
    rows = job.frozen_rows(split)
    needs_halves = job.config.namc.noise_enabled and not held_out
    texts, refused = collect_texts(rows, halves=needs_halves, limit=limit, seed=job.config.seed)
    if not texts and not held_out:
        raise ConfigError(
            f"{job.dataset.url}: no row of split {split!r} can be trained on: "
            f"{_explain_refused(refused)}"
        )
    return rows, texts, refused


def _explain_refused(refused: Sequence[Refused]) -> str:
    """Return why all rows are refused, and what to set."""
    reasons = list_reasons(refused) or "it has no rows"
    if NO_HALVES in count_reasons(refused):
        return f"{reasons}. To train on any text: --set namc.noise_enabled=false"
    return reasons


def open_captioner(job: Job) -> Captioner:
    """Return a run's initial model."""
    config = job.config.namc
    is_paper = job.config.namc.size == PAPER
    widths: Mapping[str, int] = {}
    if is_paper:
        widths = open_copies(job.run.folder / PLACES).widths
    if not job.config.start:
        vocabulary = _make_vocabulary(job)
        return captioners.make_captioner(vocabulary, config, widths, seed=job.config.seed)
    captioner = captioners.load_captioner(job.start, config)
    sizes = captioner.model.sizes
    if widths:
        codes = widths.get("codes", sizes.codes)
        if (sizes.features, sizes.codes) != (widths["grids"], codes):
            raise ModelError(
                f"--from: {job.start}: has {sizes.features} features and {sizes.codes} codes "
                f"per place, the tables {widths}: set namc.cnn and namc.vqgan to its own models"
            )
    cnn = config.cnn if is_paper else None
    return replace(captioner, cnn=cnn, length=config.max_new_tokens)


def _make_vocabulary(job: Job) -> DecoderWords:
    """Return the decoder's vocabulary, which the run's folder keeps."""
    path = job.run.folder / runs.VOCABULARY
    if path.exists():
        return saved_words(path)
    if job.config.namc.size == PAPER:
        words = bert_words(find_weights(job.config.namc.vocabulary))
    else:
        rows = job.frozen_rows(job.config.data.split).read_texts()
        texts = (row.description or row.chosen for row in rows)
        words = learnt_words(texts, size=VOCABULARY_SIZE)
    Folder(str(job.run.folder)).write(runs.VOCABULARY, words.as_json().encode())
    return saved_words(path)


def open_batches(job: Job, captioner: Captioner, *, held_out: bool = False) -> TextBatches:
    """Return batches of the training rows, with inputs for masking, or of the held-out ones."""
    rows, texts, refused = find_texts(job, held_out=held_out)
    is_paper = job.config.namc.size == PAPER
    copies = open_copies(job.run.folder / PLACES) if is_paper else read_small(rows, texts)
    usable = list[Text]()
    for text in texts:
        if copies.images.keys() >= set(text.images):
            usable.append(text)
        else:
            refused.append(Refused(key=text.key, reason=NOT_SEEN))
    runs.append_refused(job.run.refused, refused)
    if not usable and not held_out:
        raise ConfigError(
            f"{job.run.folder}: no row can be trained on; see the reasons in {job.run.refused}"
        )
    clip = job.config.namc.clip if is_paper else DualEncoderConfig(model=TOKENIZER)
    return TextBatches(
        usable,
        copies,
        clip=ClipWords(create_tokenizer(clip, field=CLIP)),
        words=captioner.words,
        length=captioner.model.sizes.length,
        show=None if held_out else _choose_pixels(captioner, rows, is_paper=is_paper),
    )


Show = Callable[[Sequence[Text], Tensor], Tensor]
"""Returns CLIP's pixels of texts with these features."""


def _choose_pixels(captioner: Captioner, rows: FrozenRows, *, is_paper: bool) -> Show | None:
    """Return the noise module's input: crops of the images, or at the small size patches."""
    noise = captioner.model.noise
    if noise is None:
        return None
    if is_paper:
        return partial(_crop_images, rows, clip_numbers(noise.clip))
    return lambda _, features: join_patches(features)


def _crop_images(
    rows: FrozenRows, numbers: Callable[[Tensor], Tensor], texts: Sequence[Text], _features: Tensor
) -> Tensor:
    def crop(text: Text) -> list[NDArray[np.uint8]]:
        return [CROP(decode_rgb(data)) for data in rows.read(text.position).images]

    crops = list[NDArray[np.uint8]]()
    with ThreadPoolExecutor(count_cores()) as threads:
        for pair in threads.map(crop, texts):
            crops += pair
    return numbers(torch.from_numpy(np.stack(crops))).unflatten(0, (-1, PAIR))


class Learner:
    """Model and optimiser in training for ``steps`` steps."""

    def __init__(self, captioner: Captioner, config: TrainConfig, steps: int) -> None:
        self.captioner = captioner
        self.model = captioner.model
        self.config = config
        self.steps = steps
        model = self.model
        rate = config.optimiser.learning_rate or RATE
        weights = [*model.encoder.parameters(), *model.describer.parameters()]
        groups: list[dict[str, Any]] = [{"params": weights, "top": rate, "floor": FLOOR}]
        if model.noise is not None:
            noise = list(model.noise.parameters())
            groups.append({"params": noise, "top": rate * NOISE_SHARE, "floor": NOISE_FLOOR})
        # Fused: a seventh of the time on a CPU, where most weights are rows of CLIP's vocabulary.
        self.optimiser = torch.optim.Adam(groups, lr=rate, fused=True)

    def train_step(
        self, batches: Iterable[Described], *, number: int, rows: int
    ) -> dict[str, float]:
        """Train on batches of ``rows`` rows in all, as step ``number`` (from 0); return metrics."""
        generator = np.random.default_rng([self.config.seed, number])
        torch.manual_seed(int(generator.integers(2**63)))  # masks and dropout
        self.model.train()
        self.optimiser.zero_grad()
        window = Window()
        for batch in batches:
            loss, values = self.losses(batch.to(self.captioner.device))
            (loss * (len(batch.written) / rows)).backward()
            window.add_batch({"loss": loss.item()} | values, weight=len(batch.written))
        metrics = window.take_means()
        groups = self.optimiser.param_groups
        for group in groups:
            group["lr"] = group["top"] * falling(number / self.steps, group["floor"])
        # Per group: gradients of cosines / 0.02 are hundreds of times those of the other losses.
        max_norm = self.config.optimiser.max_grad_norm
        norms = [clip_grad_norm_(group["params"], max_norm).item() for group in groups]
        _check_finite("the loss", metrics["loss"], number)
        _check_finite("the norm of the gradients", sum(norms), number)
        self.optimiser.step()
        metrics |= zip(("grad_norm", "grad_norm/noise"), norms, strict=False)
        metrics["learning_rate"] = groups[0]["lr"]
        return metrics

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
        model = self.model.eval()
        pad = self.captioner.words.pad
        total = 0.0
        count = 0
        for rows in _chunks(held_out):
            batch = held_out.make_batch(rows).to(self.captioner.device)
            tokens = int((batch.written[:, 1:] != pad).sum())
            with computing(self.captioner.device, choose_precision(self.config)):
                total += model(batch.features, batch.written, pad=pad).item() * tokens
            count += tokens
        if not count:
            return {}
        name = "loss" if model.noise is None else "loss/description"
        return {name: total / count}

    def describe_pairs(self, held_out: TextBatches) -> list[str]:
        """Return the model's descriptions of all pairs."""
        texts = list[str]()
        for rows in _chunks(held_out):
            texts += self.captioner.describe(held_out.features(rows))
        return texts


def _check_finite(what: str, value: float, number: int) -> None:
    """Raise ``TrainingError`` before the weights become NaN."""
    if not math.isfinite(value):
        raise TrainingError(
            f"step {number + 1}: {what} is {value}; a lower optimiser.learning_rate may help"
        )


def _chunks(batches: TextBatches) -> list[range]:
    starts = range(0, len(batches), AT_ONCE)
    return [range(start, min(start + AT_ONCE, len(batches))) for start in starts]


def falling(done: float, floor: float) -> float:
    """Return the factor of a learning rate at a share ``done`` of the steps.

    It falls as a cosine from 1 to ``floor``.
    """
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2


class Training:
    """Training of a run; ``stopping`` is set by a signal."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.stopping = False
        captioner = open_captioner(job)
        optimiser = job.config.optimiser
        captioner.model.to(choose_device())
        self.batches = open_batches(job, captioner)
        self.held_out = open_batches(job, captioner, held_out=True)
        self._batch = optimiser.per_device_train_batch_size
        self._per_step = self._batch * optimiser.gradient_accumulation_steps
        self._per_epoch = math.ceil(len(self.batches) / self._per_step)
        steps_of_epochs = max(1, round(optimiser.num_train_epochs * self._per_epoch))
        self.steps = optimiser.max_steps or steps_of_epochs
        self.learner = Learner(captioner, job.config, self.steps)
        self.metrics = MetricsFile(job.run.metrics)
        self._resume()

    def _resume(self) -> None:
        """Read the latest checkpoint, and the metrics up to it."""
        latest = self.job.run.latest()
        if not latest:
            return
        captioners.load_weights(self.learner.model, latest)
        state = torch.load(latest / OPTIMISER, map_location="cpu", weights_only=True)
        self.learner.optimiser.load_state_dict(state)
        self.metrics.read_until(self.job.run.steps()[-1])

    def run_steps(self) -> int:
        """Do the remaining steps; return the last one done."""
        steps_done = self.job.run.steps()
        begin = done = steps_done[-1] if steps_done else 0
        watcher = self.job.watcher
        if watcher:
            watcher.begin(begin, self.steps)
        ahead = self.batches.ahead(self._remaining_parts(begin))
        progress = Progress()
        for step in range(begin, self.steps):
            parts = self._parts(step)
            rows = sum(len(part) for part in parts)
            batches = islice(ahead, len(parts))
            progress.add_step(self.learner.train_step(batches, number=step, rows=rows), rows)
            done = step + 1
            if watcher:
                watcher.advance(done)
            self._report(done, step / self._per_epoch, progress)
            if self.stopping:
                break
        return done

    def _report(self, done: int, epoch: float, progress: "Progress") -> None:
        """Log, evaluate and save where it is due after a step."""
        output = self.config.output
        is_last = done == self.steps
        if is_last or done % output.logging_steps == 0:
            self._log(done, epoch, TRAIN, progress.pop_means())
        if is_last or _is_due(done, output.eval_steps):
            self._log(done, epoch, HELD_OUT, self.learner.measure(self.held_out))
        if is_last or self.stopping or done % output.save_steps == 0:
            self._save(done)

    def _remaining_parts(self, begin: int) -> Iterator[list[int]]:
        """Yield the rows of each pass through the model from a step on."""
        for step in range(begin, self.steps):
            yield from self._parts(step)

    def _parts(self, step: int) -> list[list[int]]:
        """Return a step's rows, one list per pass through the model."""
        epoch, position = divmod(step, self._per_epoch)
        order = np.random.default_rng([self.config.seed, epoch]).permutation(len(self.batches))
        rows = order[position * self._per_step : (position + 1) * self._per_step]
        starts = range(0, len(rows), self._batch)
        return [rows[start : start + self._batch].tolist() for start in starts]

    def _log(self, step: int, epoch: float, split: str, values: dict[str, float]) -> None:
        if not values:
            return
        self.metrics.add_values(step, epoch, split, values)
        self.metrics.write_file()
        if self.job.watcher:
            self.job.watcher.logged(step, split, values)

    def _save(self, step: int) -> None:
        saving = Saving(self.job.run, f"{runs.STEP}{step}")

        def write_checkpoint() -> None:
            saving.create_folder()
            captioners.save_captioner(self.learner.captioner, saving.staged)
            torch.save(self.learner.optimiser.state_dict(), saving.staged / OPTIMISER)
            saving.publish_checkpoint(self.config.output.save_total_limit)

        saving.agree(write_checkpoint)

    def save_results(self) -> None:
        """Write the results of a finished run; the model comes last and marks it as finished."""
        run = self.job.run
        descriptions = self.learner.describe_pairs(self.held_out)
        Saving(run, run.model.name).agree(lambda: self._write_results(descriptions))

    def _write_results(self, descriptions: Sequence[str]) -> None:
        run = self.job.run
        staged = self.job.run.folder / runs.FINISHING
        pairs = zip(self.held_out.texts, descriptions, strict=True)
        write_answers(
            run.answers, [(text.key, description, text.chosen) for text, description in pairs]
        )
        write_samples(run.folder, self._samples(descriptions))
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        captioners.save_captioner(self.learner.captioner, staged)
        write_model_card(
            staged,
            run,
            config=self.config,
            rows=self.job.frozen_rows(self.config.data.split),
            metrics=self.metrics,
            model=CardModel(kind="namc"),
        )
        runs.publish_folder(staged, run.model)
        run.clean()

    def _samples(self, descriptions: Sequence[str]) -> Iterator[Sample]:
        rows = self.job.frozen_rows(self.config.data.eval_split)
        for text, description in zip(self.held_out.texts[:SAMPLES], descriptions, strict=False):
            row = rows.read(text.position)
            yield Sample(
                key=row.key,
                prompt="\n".join(turn.text for turn in row.prompt),
                images=row.images,
                reference=text.chosen,
                answer=description,
                rejected=row.rejected,
            )


@dataclass
class Progress:
    """Metrics and numbers of rows since the last log entry."""

    window: Window = field(default_factory=Window)
    rows: int = 0
    since: float = field(default_factory=time.monotonic)

    def add_step(self, metrics: Mapping[str, float], rows: int) -> None:
        """Add the metrics of a step."""
        self.window.add_batch(metrics, weight=rows)
        self.rows += rows

    def pop_means(self) -> dict[str, float]:
        """Return the means and the speed, and reset."""
        seconds = max(time.monotonic() - self.since, 1e-9)
        metrics = self.window.take_means() | {"rows per second": self.rows / seconds}
        self.since = time.monotonic()
        self.rows = 0
        return metrics


def _is_due(step: int, every: int) -> bool:
    """Return whether a step is one of each ``every`` steps; 0: none is."""
    return every > 0 and step % every == 0
