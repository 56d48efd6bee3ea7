"""Open what a run of NAMC learns from and with: batches of rows, held-out rows, the model that it begins as.

Reads the run's frozen rows, and the images that they hold or, at the paper's size, what was frozen of them; appends to
``refused.jsonl``, and keeps the vocabulary in ``words.json``. Needs PyTorch and open_clip.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.namc import PAPER, DualEncoderConfig
from pairwright.tasks.models.namc.files import CLIP, find_words
from pairwright.tasks.models.namc.words import ClipWords, DecoderWords, bert_words, learnt_words, saved_words
from pairwright.tasks.models.open_clip_embedder import create_tokenizer
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.namc.freeze_places import Frozen, open_places
from pairwright.tasks.training.namc.material import Batches, Material, prepare_material
from pairwright.tasks.training.namc.pictures import TOKENIZER, WORDS
from pairwright.tasks.training.namc.placed import Placed, read_placed, relate
from pairwright.tasks.training.namc.saved import Captioner, load_captioner, make_captioner, make_large
from pairwright.tasks.training.runs import PLACES, VOCABULARY, Run, append_refused
from pairwright.tasks.training.train_model import Job

CROPS = "crops-"
"""How the files of prepared images are called, which a finished run has no more."""
ANY_CODES = 1024
"""Codes that a model of the paper's size can tell where it is not trained to tell any."""


@dataclass(frozen=True)
class Opened:
    """Be what a training begins with."""

    captioner: Captioner
    material: Material
    batches: Batches
    measured: Material
    held_out: Batches


def open_run(job: Job) -> Opened:
    """Return what a run learns from, and the model that it begins as.

    Raises:
        ConfigError: no row can be learnt from.
        ModelError: a model is missing, or another than the run began with.
        StoreError: a row cannot be read, or the disk refuses.
    """
    opened, own = _open_large(job) if job.config.namc.size == PAPER else _open_small(job), job.config.namc
    return replace(opened, captioner=replace(opened.captioner, length=own.max_new_tokens, beams=own.num_beams))


def _open_small(job: Job) -> Opened:
    data = job.config.data
    material = _small(job, data.split, data.max_train_rows)
    _check(job, material)
    if job.config.start:
        captioner = load_captioner(job.start, noise=job.config.namc.noise_enabled, config=job.config.namc)
    else:
        words = _words(job.run, lambda: learnt_words((text.chosen for text in material.texts), size=WORDS))
        captioner = make_captioner(words, noise=job.config.namc.noise_enabled, seed=job.config.seed)
    measured = _small(job, data.eval_split, data.max_eval_rows)
    clip = ClipWords(create_tokenizer(DualEncoderConfig(model=TOKENIZER), field=CLIP))
    return Opened(
        captioner, material, _batches(material, clip, captioner), measured, _batches(measured, clip, captioner)
    )


def _small(job: Job, split: str, limit: int) -> Material:
    run, config = job.run, job.config
    rows = FrozenRows(folder=job.dataset, file=str(run.rows), split=split)
    place = run.folder / f"{CROPS}{split or 'none'}.npy"
    halves = config.namc.noise_enabled and split == config.data.split
    found, refused = prepare_material(rows, place, halves=halves, limit=limit, seed=config.seed)
    append_refused(run.refused, refused)
    return found


def _open_large(job: Job) -> Opened:
    config, data = job.config, job.config.data
    frozen = open_places(job.run.folder / PLACES)
    captioner = _large(job, frozen)
    material, pictures = _placed(job, frozen, captioner, data.split, data.max_train_rows)
    _check(job, material)
    measured, _ = _placed(job, frozen, captioner, data.eval_split, data.max_eval_rows)
    clip = ClipWords(create_tokenizer(config.namc.clip, field=CLIP))
    batches = _batches(material, clip, captioner)
    if config.namc.noise_enabled and config.namc.relevance == "start":
        relate(batches, pictures, frozen, config.namc.clip)
    return Opened(captioner, material, batches, measured, _batches(measured, clip, captioner))


def _large(job: Job, frozen: Frozen) -> Captioner:
    config, seed = job.config.namc, job.config.seed
    features, codes = frozen.about["grids"], frozen.about.get("codes")
    if job.config.start:
        captioner = replace(load_captioner(job.start, noise=config.noise_enabled, config=config), cnn=config.cnn)
    else:
        words = _words(job.run, lambda: bert_words(find_words(config.vocabulary)))
        captioner = make_large(words, config, features=features, codes=codes or ANY_CODES, seed=seed)
    sizes = captioner.model.sizes
    if sizes.features != features or codes not in (None, sizes.codes):
        raise ModelError(
            f"--from: {job.start}: reads {sizes.features} features and tells {sizes.codes} codes per place, and here "
            f"are {features} and {codes}: name its own models (namc.cnn, namc.vqgan)"
        )
    return captioner


def _placed(job: Job, frozen: Frozen, captioner: Captioner, split: str, limit: int) -> tuple[Material, Placed]:
    config, noise = job.config, captioner.model.noise
    material, pictures, refused = read_placed(
        frozen,
        split,
        halves=config.namc.noise_enabled and split == config.data.split,
        limit=limit,
        seed=config.seed,
        clip=noise.clip if noise else None,
    )
    append_refused(job.run.refused, refused)
    return material, pictures


def _check(job: Job, material: Material) -> None:
    if not len(material):
        raise ConfigError(f"{job.run.folder}: no row can be learnt from; {job.run.refused} says why")


def _batches(material: Material, clip: ClipWords, captioner: Captioner) -> Batches:
    return Batches(material, clip=clip, words=captioner.words, length=captioner.model.sizes.length)


def _words(run: Run, make: Callable[[], DecoderWords]) -> DecoderWords:
    """Return a run's vocabulary: made once, and kept."""
    kept = run.folder / VOCABULARY
    if not kept.exists():
        Folder(str(run.folder)).write(VOCABULARY, make().as_json().encode())
    return saved_words(kept)


def drop_prepared(run: Run) -> None:
    """Delete what was prepared of images, which a finished run needs no more."""
    for crops in run.folder.glob(f"{CROPS}*"):
        crops.unlink()
    shutil.rmtree(run.folder / PLACES, ignore_errors=True)
