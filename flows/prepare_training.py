"""Prepare what a training needs beside its rows: tables beside the dataset's own, frozen in the run's folder.

For ADPO's retriever the table ``text_vectors``, and ``embeddings`` where the dataset was built without (its source
brought the pairs); for the encoder CLIP4IDC only the name of the weights is kept, it sees the images. For negatives
that a trained retriever mines, ``mined``. For NAMC at the paper's size ``grids`` and ``codes`` of the pairs' images.
Such a table belongs to no version of the dataset: what is there is not made again, what was killed goes on. Nothing is
fetched: a missing model is named, with what fetches it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairwright.flows.run_build import Request, run_stage, working
from pairwright.flows.version import Version
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.namc import PAPER, CnnConfig
from pairwright.schemas.section import Section
from pairwright.schemas.training import MinedConfig, TextVectorsConfig, TrainConfig
from pairwright.tasks.mining import embed_images
from pairwright.tasks.models.namc_places import pin_namc, release_models
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.stage import Planned, Stage
from pairwright.tasks.training import embed_chosen_texts, mine_negatives
from pairwright.tasks.training.freeze_rows import FILE, FrozenRows
from pairwright.tasks.training.namc import tables
from pairwright.tasks.training.retriever import material
from pairwright.tasks.training.runs import PLACES, RETRIEVER, Run, check_name

Have = Callable[..., Planned]
"""``make_table``, which makes what is missing of a table, or ``Version.plan``, which only says which table it is."""


def make_table(version: Version, stage: Stage, config: Section, *, after: Sequence[Planned] = ()) -> Planned:
    """Do what a stage owes beside a version, and return it planned: its table is whole then."""
    planned = version.plan(stage, config, after=after)
    request = Request.again(version.folder, version.record)
    with version.opened([*after, planned]) as build, working(request) as work:
        version.settle(build, version.planned)
        for one in after:
            build.settle(one)
        counts, failures = run_stage(build, planned, request, work)
    if (owed := counts.failed + counts.pending) or failures:
        why = failures[0].error if failures else next(iter(counts.reasons), "not known")
        raise TrainingError(
            f"{stage.name}: {owed:,} of {counts.of:,} rows could not be made: {why}. What is made is kept; the same "
            "command goes on with it"
        )
    return planned


def prepare_retriever(version: Version, config: TrainConfig, run: Path, *, after: Sequence[Planned] = ()) -> None:
    """Freeze what the retriever of a run knows in the run's folder, once, when its rows are frozen.

    The rows may be of tables beside the dataset's (``after``).
    """
    embedding = version.profile.settled.embedding
    heads = config.adpo.encoder == "heads"
    clip = None if heads else pin_clip(embedding.clip, download=False)  # before anything is made
    frozen, place = open_rows(version.folder, config, run), run / RETRIEVER
    beside = [*after, *(_vectors(version, embedding) if heads else ())]
    with version.settled(beside) as (build, _):
        tables = {planned.stage.name: planned for planned in build.planned}
        material.freeze_material(build, tables, place, frozen=frozen, table=config.table)
    if clip:
        (place / material.CLIP).write_text(clip.model_dump_json())


def open_rows(folder: Folder, config: TrainConfig, run: Path) -> list[FrozenRows]:
    """Return the frozen rows of a run: those that are trained on, and those that are measured on."""
    splits = filter(None, (config.data.split, config.data.eval_split))
    return [FrozenRows(folder=folder, file=str(run / FILE), split=split) for split in splits]


def _vectors(version: Version, embedding: EmbeddingConfig, have: Have = make_table) -> list[Planned]:
    made = [have(version, embed_chosen_texts.STAGE, choose_text_vectors(embedding))]
    if embed_images.STAGE.name not in {planned.stage.name for planned in version.planned}:
        made.append(have(version, embed_images.STAGE, embedding))
    return made


def choose_text_vectors(embedding: EmbeddingConfig) -> TextVectorsConfig:
    """Return what makes the vectors of texts: CLIP's tower where images have CLIP's vectors, else their words."""
    if "clip" in embedding.embedders:
        return TextVectorsConfig(encoder="clip", clip=embedding.clip)
    return TextVectorsConfig()


def find_retriever(folder: Folder, name: str) -> Path:
    """Return the trained retriever of a dataset's run: its ``retriever.safetensors``."""
    from pairwright.tasks.training.retriever.adversary import NETWORK

    if not folder.is_local:
        raise ConfigError(f"negatives_from: {name}: runs are on local disks, and {folder.url} is not")
    run = Run(Path(folder.path(f"runs/{check_name(name, field='negatives')}")))
    config, command = run.config(), f"pairwright train {folder.url} --objective adpo"
    if config is None:
        raise ConfigError(f"negatives_from: {run.folder}: there is no such run. Make one with: {command} --name {name}")
    if config.objective != "adpo":
        raise ConfigError(
            f"negatives_from: {run.folder} is a run of {config.objective}, which has no retriever. Name a run of adpo "
            f"(`pairwright runs {folder.url}`), or make one with: {command} --name ANOTHER"
        )
    if not run.is_finished or not (run.folder / RETRIEVER / NETWORK).exists():
        raise ConfigError(
            f"negatives_from: {run.folder} is not finished, and its retriever is written at the end. Continue "
            f"with: {command} --name {name}"
        )
    return run.folder / RETRIEVER / NETWORK


def mine_table(version: Version, retriever: Path, *, pool: str = "train", have: Have = make_table) -> list[Planned]:
    """Make the table ``mined`` with the retriever of an ADPO run; return it, last, behind what it was made with.

    The chosen texts of the split ``pool`` are the negatives. With ``Version.plan`` nothing is made, and the table may
    not be there, or not be whole.
    """
    beside = _vectors(version, version.profile.settled.embedding, have)
    stage = mine_negatives.stage_among({planned.stage.name for planned in version.planned})
    config = MinedConfig(retriever=str(retriever), pool=pool)
    return [*beside, have(version, stage, config, after=beside)]


def namc_defaults(config: str, *, starts: bool) -> dict[str, Any]:
    """Return what is set otherwise for NAMC, unless it is set; at the paper's size as published (001, Appendix F).

    A run that starts from another one is fine-tuned for the 20 epochs of Image-Editing-Request (the paper has 40 for
    CLEVR-Change and CLEVR-DC, 10 for Spot-the-Diff).
    """
    if config != PAPER:
        return {
            "namc.noise_enabled": not starts,
            "optimiser.num_train_epochs": 20 if starts else 40,
            "optimiser.per_device_train_batch_size": 16,
            "output.logging_steps": 10,
            "output.eval_steps": 50,
        }
    tuned = {
        "namc.noise_enabled": False,
        "namc.max_new_tokens": 23,
        "optimiser.learning_rate": 2e-4,
        "optimiser.gradient_accumulation_steps": 4,
    }
    return {
        **(tuned if starts else {"optimiser.learning_rate": 3e-4, "optimiser.gradient_accumulation_steps": 16}),
        "optimiser.per_device_train_batch_size": 32,
        "optimiser.num_train_epochs": 20,
        "output.eval_steps": 500,
    }


def pin_models(config: TrainConfig, *, start: Path) -> TrainConfig:
    """Return the settings with the revisions of the models that this machine has."""
    own = config.namc
    if own.size != PAPER:
        return config
    if config.start and own.cnn == CnnConfig():
        from pairwright.tasks.training.namc.captioner import read_about

        own = own.model_copy(update={"cnn": read_about(start).cnn or CnnConfig()})
    return config.model_copy(update={"namc": pin_namc(own, starts=bool(config.start))})


def have_places(version: Version, config: TrainConfig, run: Run) -> None:
    """Have what a run is told of its images in its folder."""
    from pairwright.tasks.training.namc.train_namc import find_texts
    from pairwright.tasks.training.train_model import Job

    own, place = config.namc, run.folder / PLACES
    job = Job(run=run, config=config, dataset=version.folder, start=Path())
    texts = [text for held_out in (False, True) for text in find_texts(job, held_out=held_out)[1]]
    if own.size != PAPER or (place / tables.ABOUT).exists():
        return
    stages = [(tables.GRIDS, own.cnn)]
    if own.noise_enabled and own.reconstruction_enabled:
        stages = [*stages, (tables.CODES, own.vqgan)]
    has_pairs = any(planned.stage.name == "pairs" for planned in version.planned)
    try:
        beside = [make_table(version, one if has_pairs else replace(one, only_in=()), used) for one, used in stages]
    finally:
        release_models()
    with version.settled(beside) as (build, _):
        settled = {planned.stage.name: planned for planned in build.planned}
        made = [settled[stage.name] for stage, _ in stages]
        tables.copy_tables(build, made, [key for text in texts for key in text.images], place)
