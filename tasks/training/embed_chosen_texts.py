"""Embed each chosen text for ADPO's retriever.

Reads ``PreferenceRow`` without images, writes one ``EmbeddingRow`` per distinct text, whose subject
is ``text_key``. Encoders:

* ``clip``: the text tower of the images' CLIP; longer texts are cut at clauses, and the vectors of
  the pieces added (ours).
* ``words``: hashed counts of words and word pairs; those about the first and the second image are
  counted separately, so that exchanging the halves changes the vector (ours).
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import EmbeddingRow, PreferenceRow, make_key
from pairwright.schemas.training import WORDS, TextVectorsConfig
from pairwright.tasks.models.devices import count_processes
from pairwright.tasks.models.embedders import to_unit
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.models.text_scorer import OpenClipTexts
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.texts.differences import MIDDLE, START

WORDS_VERSION = 1
MOST_CHARACTERS = 20_000  # read per text; untrusted ones may have any length
MOST_PIECES = 16
WORD = re.compile(r"\w+")


def text_key(text: str) -> str:
    """Return the key of a text, the subject of its vector."""
    return make_key("text", text)


def embed_chosen_texts(
    rows: Sequence[PreferenceRow], config: TextVectorsConfig
) -> Iterator[EmbeddingRow]:
    """Yield the vector of each row's chosen text; equal texts give equal rows, counted once."""
    texts = list(dict.fromkeys(row.chosen for row in rows))
    if _uses_clip(config):
        matrix = _with_clip(texts, config)
    else:
        matrix = hash_words(texts, config.dimension)
    vectors = dict(zip(texts, matrix, strict=True))
    for row in rows:
        key = text_key(row.chosen)
        encoder = name_encoder(config)
        unit, norm = to_unit(vectors[row.chosen], f"{encoder}, of text {key}")
        yield EmbeddingRow(
            key=make_key("text vector", key, encoder),
            source_key=row.key,
            subject=key,
            embedder=config.encoder,
            vector=unit,
            norm=norm,
        )


def hash_words(texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
    """Return ``(n, dimension)`` counts of hashed words and word pairs.

    They are zeros where a text has no words.
    """
    from sklearn.feature_extraction import FeatureHasher

    if not texts:
        return np.empty((0, dimension), dtype=np.float32)
    terms = (list(_terms(text[:MOST_CHARACTERS])) for text in texts)
    hasher = FeatureHasher(dimension, input_type="string")
    return hasher.transform(terms).toarray().astype(np.float32)


def _terms(text: str) -> Iterator[str]:
    """Yield a text's words and word pairs, each prefixed with the number of its image.

    It is 0 for texts that do not describe the two images in turn.
    """
    start = START.match(text)
    halves = MIDDLE.split(text[start.end() :]) if start else []
    numbered = list(enumerate(halves, 1)) if len(halves) == 2 else [(0, text)]
    for image_number, part in numbered:
        tokens = WORD.findall(part.lower())
        yield from (f"{image_number}:{token}" for token in tokens)
        yield from (f"{image_number}:{first} {second}" for first, second in pairwise(tokens))


def _with_clip(texts: Sequence[str], config: TextVectorsConfig) -> NDArray[np.float32]:
    """Return ``(n, dimension)`` sums of the unit vectors of each text's pieces."""
    tower = OpenClipTexts(config=config.clip)
    pieces = [tower.split_text(text[:MOST_CHARACTERS])[:MOST_PIECES] or ("",) for text in texts]
    vectors = tower.embed(list(chain.from_iterable(pieces)))
    if not texts:
        return vectors
    starts = np.cumsum([0, *map(len, pieces)])[:-1]
    return np.add.reduceat(vectors, starts, axis=0)


def _uses_clip(config: TextVectorsConfig) -> bool:
    return config.encoder == "clip"


def name_encoder(config: TextVectorsConfig) -> str:
    """Return the identity of the encoder, which changes with its vectors."""
    if _uses_clip(config):
        return f"clip {OpenClipTexts(config=config.clip).version}"
    return f"{WORDS} {WORDS_VERSION} {config.dimension}"


def _models(config: TextVectorsConfig) -> tuple[str, ...]:
    return (name_encoder(config),)


def pin_texts(config: TextVectorsConfig) -> TextVectorsConfig:
    """Return the configuration with the revision of the local weights."""
    if not _uses_clip(config):
        return config
    return config.model_copy(update={"clip": pin_clip(config.clip, download=False)})


STAGE = Stage(
    name="text_vectors",
    version=1,
    group="training",
    reads={"preferences": PreferenceRow},
    writes=EmbeddingRow,
    function=embed_chosen_texts,
    config=TextVectorsConfig,
    models=_models,
    pin=pin_texts,
    processes=partial(count_processes, _uses_clip),
    without=("images", "rejected_images", "removal_scores", "negatives"),
    rows_per_shard=2000,
)
