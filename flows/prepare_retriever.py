"""Have what ADPO's retriever needs of a dataset, frozen in the run's folder; mine negatives with a trained one.

Makes the table ``text_vectors`` beside the dataset's own, and ``embeddings`` where the dataset was built without (its
source brought the pairs). For the encoder CLIP4IDC only the name of the weights is kept; it sees the images.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pairwright.flows.make_table import make_table
from pairwright.flows.version import Version
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import MinedConfig, TextVectorsConfig, TrainConfig
from pairwright.tasks.mining import embed_images
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training import embed_chosen_texts, mine_negatives
from pairwright.tasks.training.freeze_rows import FILE, FrozenRows
from pairwright.tasks.training.retriever import material
from pairwright.tasks.training.runs import RETRIEVER, Run, check_name

Have = Callable[..., Planned]
"""``make_table``, which makes what is missing of a table, or ``Version.plan``, which only says which table it is."""


def prepare_retriever(version: Version, config: TrainConfig, run: Path, *, after: Sequence[Planned] = ()) -> None:
    """Freeze what the retriever of a run knows in the run's folder, once, when its rows are frozen.

    The rows may be of tables beside the dataset's (``after``).
    """
    data, embedding = config.data, version.profile.settled.embedding
    heads = config.adpo.encoder == "heads"
    clip = None if heads else pin_clip(embedding.clip, download=False)  # before anything is made
    splits: dict[str, str] = {}
    for split in filter(None, (data.split, data.eval_split)):
        splits |= dict.fromkeys(FrozenRows(folder=version.folder, file=str(run / FILE), split=split).keys(), split)
    place = run / RETRIEVER
    beside = [*after, *(_vectors(version, embedding) if heads else ())]
    with version.settled(beside) as (build, _):
        tables = {planned.stage.name: planned for planned in build.planned}
        material.freeze_material(build, tables, place, splits=splits, train=data.split, table=config.table)
    if clip:
        (place / material.CLIP).write_text(clip.model_dump_json())


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
