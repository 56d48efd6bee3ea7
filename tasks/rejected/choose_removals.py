"""Choose the removal that rejects a chosen text the most (paper 004, section 3.2).

Reads ``PairRow`` with its description, ``PreferenceRow`` as a source gave it, and the checked removals from its images;
writes one ``RejectionRow`` per pair or preference. Scene graphs score on rendered scenes, CLIP elsewhere (Eq. 9; needs
its text tower, PyTorch and open_clip): no image is read. A removal without checks or vector is left out until it has
them. If none can be chosen, ``rejections.fallback`` decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import attrgetter

from pairwright.schemas.config import RejectionsConfig
from pairwright.schemas.removing import SEVERAL
from pairwright.schemas.rows import (
    NO_ROWS,
    DifferenceRow,
    Dropped,
    ElementRow,
    EmbeddingRow,
    ImageRow,
    Images,
    InspectionRow,
    PairRow,
    PreferenceRow,
    RejectionRow,
    StatementsRow,
)
from pairwright.tasks.models.devices import count_processes
from pairwright.tasks.models.text_scorer import OpenClipTexts, name_texts
from pairwright.tasks.rejected.pick_removal import (
    Elements,
    Inspections,
    Text,
    candidates_of,
    embed_texts,
    pick_removal,
    score_by_clip,
    score_by_graphs,
    texts_of,
)
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.store.vectors import Vectors


def choose_removals(
    rows: Sequence[PairRow | PreferenceRow],
    config: RejectionsConfig,
    *,
    elements: Elements,
    inspected: Inspections,
    differences: Mapping[str, DifferenceRow] = NO_ROWS,
    images: Images = NO_ROWS,
    statements: Mapping[str, tuple[StatementsRow, ...]] = NO_ROWS,
    vectors: Mapping[str, Vectors] = NO_ROWS,
    candidates: Mapping[str, Vectors] = NO_ROWS,
) -> Iterator[RejectionRow | Dropped]:
    """Yield the rejection of each pair's description by an image, with the score of every candidate.

    A source's preference is about one image, and is scored by CLIP: ``vectors`` are those of the images by embedder,
    ``candidates`` those of the images without an element, by embedder and the element's key. ``statements`` are those
    of texts that a served model split.
    """
    texts_by_key = {
        row.key: _split_texts(text, statements.get(row.subject, ()))
        for row in rows
        if (text := row if isinstance(row, PreferenceRow) else differences.get(row.key))
    }
    scorer = OpenClipTexts(config=config.clip) if config.clip else None
    spoken = embed_texts(chain(*texts_by_key.values()), scorer) if scorer else {}
    for row in rows:
        keys = (row.first, row.second) if isinstance(row, PairRow) else row.image_keys
        if row.key not in texts_by_key:
            yield Dropped(source_key=row.key, reason="no difference description")
            continue
        if len(keys) != len(texts_by_key[row.key]):
            yield Dropped(source_key=row.key, reason=SEVERAL, detail=f"{len(keys)}")
            continue
        found = candidates_of(keys, elements, inspected)
        if scorer:
            said = [spoken.get(text) for text in texts_by_key[row.key]]
            scored = score_by_clip(found, keys, said, images=vectors, removals=candidates)
        else:
            scored = score_by_graphs(differences[row.key], (images[keys[0]], images[keys[1]]), found)
        yield pick_removal(row.key, scored, config, shown=[images[key] for key in keys if key in images])


def _split_texts(row: DifferenceRow | PreferenceRow, statements: Sequence[StatementsRow]) -> tuple[Text, ...]:
    own = {one.text: one.sentences for one in statements if one.source_key == row.key}
    return tuple(own.get(text, text) for text in texts_of(row))


def _fit(stage: Stage, config: RejectionsConfig) -> Stage:
    """Return the stage with its scorer's inputs: vectors, and images only for graphs and the sizes of crops."""
    unseen: tuple[Uses, ...] = (STATEMENTS, VECTORS, CANDIDATES)
    if config.scorer == "clip":
        unseen = () if config.fallback == "crop" else (IMAGES,)
    return replace(stage, uses=tuple(use for use in stage.uses if use not in unseen))


IMAGES = Uses(table="images", row=ImageRow, on="shown", without=("image", "captions"))
STATEMENTS = Uses(table="statements", row=StatementsRow, kind="many", without=("served",), counts=True)
VECTORS = Uses(table="embeddings", row=EmbeddingRow, kind="vectors", on="shown", name="vectors", counts=True)
CANDIDATES = Uses(
    table="fitted", row=EmbeddingRow, kind="vectors", name="candidates", on="key", of="elements", counts=True
)
STAGE = Stage(
    name="rejections",
    group="rejected",
    reads={"pairs": PairRow, "given_preferences": PreferenceRow},
    writes=RejectionRow,
    function=choose_removals,
    without=("images", "rejected_images"),
    config="rejections",
    enabled=attrgetter("enabled"),
    fit=_fit,
    models=name_texts,
    processes=partial(count_processes, attrgetter("by_clip")),
    uses=(
        Uses(table="differences", row=DifferenceRow, counts=True),
        IMAGES,
        Uses(table="elements", row=ElementRow, kind="many", on="shown", counts=True, without=("mask", "boxes")),
        Uses(table="inspected", row=InspectionRow, kind="many", on="shown", counts=True),
        STATEMENTS,
        VECTORS,
        CANDIDATES,
    ),
)
