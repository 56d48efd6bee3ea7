"""Prepare a training's inputs beside the preferences: tables beside the dataset's own, copied to the run's folder.

For rows of another table: ``conversations``, to which files and other datasets may add rows. For
ADPO's retriever: ``text_vectors``, and ``embeddings`` if the dataset was built without them (its
source brought the pairs); for the encoder CLIP4IDC, which sees the images, only the name of its
weights. For NAMC at the paper's size: ``grids`` and ``codes`` of the pairs' images. Such a table
belongs to no version of the dataset: finished rows are kept, a killed run continues. Nothing is
fetched: an error names a missing model and the command that fetches it.
"""

import hashlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairwright.flows.building.open_executor import open_executor
from pairwright.flows.building.run_build import run_stage
from pairwright.flows.versions.show_status import say_reasons
from pairwright.flows.versions.version import Version, open_version
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.decisions import Decisions
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.namc_config import PAPER, CnnConfig
from pairwright.schemas.section import Section
from pairwright.schemas.training import TextVectorsConfig, TrainConfig
from pairwright.tasks.mining import embed_images
from pairwright.tasks.models.namc_places import pin_namc, release_models
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.preferences import split_pairs
from pairwright.tasks.sources.read_llava import read_llava
from pairwright.tasks.store.build import RECORD, Build
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.stage import Planned, Stage
from pairwright.tasks.training import embed_chosen_texts
from pairwright.tasks.training import freeze_rows as freezing
from pairwright.tasks.training.namc import feature_tables
from pairwright.tasks.training.retriever import material
from pairwright.tasks.training.runs import PLACES, RETRIEVER, Run
from pairwright.tasks.training.tell_conversations import stage_of


def make_table(
    version: Version, stage: Stage, config: Section, *, after: Sequence[Planned] = ()
) -> Planned:
    """Do what a stage owes beside a version, and return it planned, with its table complete."""
    planned = version.plan(stage, config, after=after)
    with version.opened([*after, planned]) as build, open_executor(version) as executor:
        version.settle(build, version.planned)
        for one in after:
            build.settle(one)
        counts, failures = run_stage(build, planned, executor)
    if (owed := counts.failed + counts.pending) or failures:
        why = failures[0].error if failures else next(iter(counts.reasons), "not known")
        raise TrainingError(
            f"{stage.name}: {owed:,} of {counts.of:,} rows could not be made: {why}. Finished rows are kept; the same "
            "command continues"
        )
    return planned


def prepare_retriever(version: Version, config: TrainConfig, run: Path) -> None:
    """Write the data of a run's retriever to the run's folder, once, when its rows are frozen."""
    embedding = version.profile.settled.embedding
    heads = config.adpo.encoder == "heads"
    clip = None if heads else pin_clip(embedding.clip, download=False)  # before anything is made
    file, place = str(run / freezing.FILE), run / RETRIEVER
    splits = filter(None, (config.data.split, config.data.eval_split))
    frozen = [
        freezing.FrozenRows(folder=version.folder, file=file, split=split) for split in splits
    ]
    vectors = (
        [make_table(version, embed_chosen_texts.STAGE, choose_text_vectors(embedding))]
        if heads
        else []
    )
    if heads and embed_images.STAGE.name not in {planned.stage.name for planned in version.planned}:
        vectors.append(make_table(version, embed_images.STAGE, embedding))
    with version.settled(vectors) as (build, _):
        tables = {planned.stage.name: planned for planned in build.planned}
        material.freeze_material(build, tables, place, frozen=frozen, table=config.table)
    if clip:
        (place / material.CLIP).write_text(clip.model_dump_json())


def choose_text_vectors(embedding: EmbeddingConfig) -> TextVectorsConfig:
    """Return the encoder of texts: CLIP's text tower if images have CLIP's vectors, else hashed words."""
    has_clip = "clip" in embedding.embedders
    return (
        TextVectorsConfig(encoder="clip", clip=embedding.clip) if has_clip else TextVectorsConfig()
    )


def tell_table(version: Version, config: TrainConfig) -> list[Planned]:
    """Make ``conversations`` of the table that is trained on, if it is not preferences; return that, behind splits."""
    table, there = (
        config.data.table,
        {planned.stage.name: planned.stage for planned in version.planned},
    )
    if table == "preferences" or table not in there:
        return []
    beside = list[Planned]()
    if (splits := split_pairs.STAGE).name not in there:  # it was built until an earlier stage
        beside.append(make_table(version, splits, splits.configure(version.profile)))
    return [*beside, make_table(version, stage_of(there[table]), Section(), after=beside)]


@contextmanager
def opened_rows(
    version: Version, config: TrainConfig, beside: Sequence[Planned]
) -> Generator[tuple[Build, Planned, Decisions]]:
    """Open the settled training table, with the decisions about its rows."""
    table, folder = config.data.table, version.folder
    with version.settled(beside) as (build, _):
        planned = next((one for one in build.planned if one.stage.name == config.table), None)
        if planned is None or not build.settle(planned).rows:
            raise ConfigError(
                f"{folder.url}: has no {table} to train on. See why with: pairwright status {folder.url}"
            )
        decisions = read_decisions(folder)
        yield build, planned, decisions if table == "preferences" else decisions.without_edits()


def mix_in(
    config: TrainConfig, run: Run, needs: freezing.Needs
) -> tuple[list[dict[str, Any]], list[freezing.Refused]]:
    """Add further data to a run's frozen rows; return the rows taken from each source, and the refused ones."""
    data, taken, refused = config.data, list[dict[str, Any]](), list[freezing.Refused]()
    every = freezing.count_rows(run.rows, data.split) / (1 - sum(share for _, share in data.mixed))
    for number, (source, share) in enumerate(data.mixed):
        file, rows = run.folder / freezing.MIXED / f"{number}.arrow", max(1, round(share * every))
        if Path(source).is_file():
            about: dict[str, Any] = {"sha256": _hash(source)}
            found = read_llava(Path(source), seed=config.seed)
            why = freezing.write_rows(found, file, needs=needs, split=data.split, most=rows)
        elif Folder(source).exists(RECORD):
            other = open_version(Folder(source))
            about = {"version": other.number or None}
            file.parent.mkdir(exist_ok=True)
            with opened_rows(other, config, tell_table(other, config)) as (
                build,
                planned,
                decisions,
            ):
                own: dict[str, Any] = {
                    "needs": needs,
                    "splits": (data.split,),
                    "decisions": decisions,
                }
                why, _ = freezing.freeze_rows(build, planned, file, **own)
        else:
            raise ConfigError(
                f"data.mix: {source}: is neither LLaVA's JSON nor a dataset (it has no {RECORD})"
            )
        if not freezing.count_rows(file, data.split):
            reasons = say_reasons(freezing.count_reasons(why)) or "there is none"
            raise ConfigError(f"data.mix: {source}: no row can be trained on: {reasons}")
        different = freezing.mix_rows(run.rows, file, Folder(source), rows=rows, seed=config.seed)
        taken.append(
            {"source": source, "share": share, "rows": rows, "different": different, **about}
        )
        refused += why
    return taken, refused


def check_mixed(run: Run) -> None:
    """Refuse to continue a run if a file of its further data has changed."""
    for taken in run.data().get("mix", ()):
        if "sha256" in taken and _hash(taken["source"]) != taken["sha256"]:
            raise ConfigError(
                f"data.mix: {taken['source']}: has changed since {run.folder} began. Restore the old file, or give "
                "another --name"
            )


def _hash(path: str) -> str:
    with naming(path, "read"), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def namc_defaults(config: str, *, starts: bool) -> dict[str, Any]:
    """Return NAMC's defaults for unset settings; at the paper's size those published (001, Appendix F).

    A run that starts from another one is fine-tuned for the 20 epochs of Image-Editing-Request (the
    paper has 40 for CLEVR-Change and CLEVR-DC, 10 for Spot-the-Diff).
    """
    if config != PAPER:
        steps = {
            "output.logging_steps": 10,
            "output.eval_steps": 50,
            "optimiser.per_device_train_batch_size": 16,
        }
        return {
            **steps,
            "namc.noise_enabled": not starts,
            "optimiser.num_train_epochs": 20 if starts else 40,
        }
    steps = {
        "output.eval_steps": 500,
        "optimiser.per_device_train_batch_size": 32,
        "optimiser.num_train_epochs": 20,
    }
    if not starts:
        return {
            **steps,
            "optimiser.learning_rate": 3e-4,
            "optimiser.gradient_accumulation_steps": 16,
        }
    tuned = {"optimiser.learning_rate": 2e-4, "optimiser.gradient_accumulation_steps": 4}
    return {**steps, **tuned, "namc.noise_enabled": False, "namc.max_new_tokens": 23}


def pin_models(config: TrainConfig, *, start: Path) -> TrainConfig:
    """Return the settings with this machine's revisions of the models."""
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
    if own.size != PAPER or (place / feature_tables.ABOUT).exists():
        return
    stages = [(feature_tables.GRIDS, own.cnn)]
    if own.noise_enabled and own.reconstruction_enabled:
        stages = [*stages, (feature_tables.CODES, own.vqgan)]
    has_pairs = any(planned.stage.name == "pairs" for planned in version.planned)
    try:
        beside = [
            make_table(version, one if has_pairs else replace(one, only_in=()), used)
            for one, used in stages
        ]
    finally:
        release_models()
    with version.settled(beside) as (build, _):
        settled = {planned.stage.name: planned for planned in build.planned}
        made = [settled[stage.name] for stage, _ in stages]
        feature_tables.copy_tables(
            build, made, [key for text in texts for key in text.images], place
        )
