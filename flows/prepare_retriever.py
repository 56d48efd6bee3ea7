"""Have what ADPO's retriever needs of a dataset, frozen in the run's folder; mine negatives with a trained one.

Makes the table ``text_vectors`` beside the dataset's own, and ``embeddings`` where the dataset was built without (its
source brought the pairs). For the encoder CLIP4IDC only the name of the weights is kept; it sees the images.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.run_beside import run_beside, settled_beside
from flows.run_build import request_of
from flows.stages import stages_until
from schemas.config import EmbeddingConfig
from schemas.encoders import ClipConfig
from schemas.retrieving import MinedConfig, TextVectorsConfig
from schemas.training import TrainConfig
from tasks.mining import embed_images
from tasks.store.files import Folder

if TYPE_CHECKING:
    from tasks.store.stage import Planned

CLIP = "clip"


def prepare_retriever(folder: Folder, config: TrainConfig, run: Path, *, after: "Sequence[Planned]" = ()) -> None:
    """Freeze what the retriever of a run knows; once, when the run begins and its rows are frozen.

    Args:
        folder: the dataset.
        config: the run's settings.
        run: the run's folder.
        after: tables beside the dataset's that the run's rows are of ("mined").

    Raises:
        ConfigError: the dataset lacks something.
        ModelError: the weights of an encoder are not on this machine.
        TrainingError: some vectors could not be made.
    """
    from tasks.training.freeze_rows import FILE, FrozenRows
    from tasks.training.retriever import material

    loading, embedding = config.loading, request_of(folder)[0].profile.embedding
    heads = config.adpo.encoder == "heads"
    clip = None if heads else _find_clip(embedding)  # before anything is made
    splits: dict[str, str] = {}
    for split in filter(None, (loading.split, loading.held_out)):
        splits |= dict.fromkeys(FrozenRows(folder=folder, file=str(run / FILE), split=split).keys(), split)
    place = run / material.FOLDER
    beside = [*after, *(_vectors(folder, embedding) if heads else ())]
    with settled_beside(folder, beside) as build:
        tables = {planned.stage.name: planned for planned in build.planned}
        material.freeze_material(build, tables, place, splits=splits, train=loading.split, table=config.table)
    if clip:
        (place / material.CLIP).write_text(clip.model_dump_json())


def _find_clip(embedding: EmbeddingConfig) -> ClipConfig:
    from tasks.models.open_clip_embedder import pin_clip

    return pin_clip(embedding.clip, download=False)


def _vectors(folder: Folder, embedding: EmbeddingConfig) -> "list[Planned]":
    """Make the vectors of texts, and those of images where there are none."""
    from tasks.training import embed_chosen_texts

    request, _ = request_of(folder)
    made = [run_beside(folder, embed_chosen_texts.STAGE, choose_text_vectors(embedding))]
    names = {stage.name for stage in stages_until(request.profile, request.until)}
    if embed_images.STAGE.name not in names:
        made.append(run_beside(folder, embed_images.STAGE, embedding))
    return made


def choose_text_vectors(embedding: EmbeddingConfig) -> TextVectorsConfig:
    """Return what makes the vectors of texts: CLIP's tower where images have CLIP's vectors, else their words."""
    if CLIP in embedding.embedders:
        return TextVectorsConfig(encoder="clip", clip=embedding.clip)
    return TextVectorsConfig()


def mine_table(folder: Folder, retriever: Path, *, pool: str = "train") -> "list[Planned]":
    """Make the table ``mined`` with the retriever of an ADPO run; return it, last, behind what it was made with.

    Args:
        folder: the dataset.
        retriever: the run's ``retriever.safetensors``.
        pool: the split whose chosen texts are negatives.

    Raises:
        ConfigError: the dataset lacks something.
        ModelError: the file is missing, or was trained on other vectors.
        TrainingError: some rows could not be made.
    """
    from tasks.training import mine_negatives

    request, _ = request_of(folder)
    beside = _vectors(folder, request.profile.embedding)
    names = {stage.name for stage in stages_until(request.profile, request.until)}
    stage = mine_negatives.stage_among(names)
    config = MinedConfig(retriever=str(retriever), pool=pool)
    return [*beside, run_beside(folder, stage, config, after=beside)]
