"""Write the data of ADPO's retriever into a run's folder, once, when its rows are frozen.

Makes the tables ``text_vectors`` and, if the dataset was built without them (its source brought the
pairs), ``embeddings``. The encoder CLIP4IDC sees the images, and needs only the name of its
weights. Nothing is fetched: an error names a missing model and the command that fetches it.
"""

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.training import TextVectorsConfig, TrainConfig
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.training import embed_chosen_texts
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.objective import DatasetTables
from pairwright.tasks.training.retriever.material import CLIP, freeze_material
from pairwright.tasks.training.runs import RETRIEVER, Run


def prepare_retriever(config: TrainConfig, run: Run, tables: DatasetTables) -> None:
    """Write the data of a run's retriever."""
    embedding = tables.embedding
    folder = run.folder / RETRIEVER
    has_heads = config.adpo.encoder == "heads"
    clip = None
    extra = []
    if has_heads:
        text_vectors = choose_text_vectors(embedding)
        extra.append(tables.make_table(embed_chosen_texts.STAGE, text_vectors))
        extra += tables.add_missing("embeddings")
    else:
        clip = pin_clip(embedding.clip, download=False)
    splits = [split for split in (config.data.split, config.data.eval_split) if split]
    frozen = [FrozenRows(folder=tables.folder, file=str(run.rows), split=split) for split in splits]
    with tables.open_tables(extra) as build:
        planned = {planned.stage.name: planned for planned in build.planned}
        freeze_material(
            build,
            planned,
            folder,
            frozen=frozen,
            table=config.table,
            own_makers=config.adpo.own_makers,
        )
    if clip:
        (folder / CLIP).write_text(clip.model_dump_json())


def choose_text_vectors(embedding: EmbeddingConfig) -> TextVectorsConfig:
    """Return the encoder of texts: CLIP's if the images have CLIP's vectors, else hashed words."""
    if "clip" in embedding.embedders:
        return TextVectorsConfig(encoder="clip", clip=embedding.clip)
    return TextVectorsConfig()
