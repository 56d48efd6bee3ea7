"""Vectors by row and by text; what is missing is named."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.training.embed_chosen_texts import text_key
from pairwright.tasks.training.retriever.candidate_pool import make_pool
from pairwright.tasks.training.retriever.material import map_features
from tests.fixtures.retrieving import entry

IMAGES = [make_key("image", number) for number in range(5)]


def vectors(keys, size):
    names = np.array(sorted(key.encode() for key in keys), dtype="S32")
    matrix = np.random.default_rng(size).normal(size=(len(names), size)).astype(np.float16)
    return Vectors(names, matrix, np.ones(len(names), dtype=np.float32))


def vector_of(table, key):
    return table.matrix[table.rows_of([key])[0]]


ROWS = [
    replace(entry(0, "b"), images=(IMAGES[3], IMAGES[1])),
    replace(entry(1, "a"), images=(IMAGES[4], IMAGES[4])),
]
"""The second row has one image."""
POOL = make_pool(ROWS)
SHAPE, COLOUR, HASH = (vectors(IMAGES, size) for size in (3, 2, 7))
TEXTS = vectors([text_key("a"), text_key("b"), text_key("unused")], 4)
FEW = vectors([text_key("a")], 4)


def test_all_embedders_but_the_hash_of_copies_stand_side_by_side():
    images = {"shape": SHAPE, "colour": COLOUR, "perceptual-hash": HASH}
    features = map_features(ROWS, POOL, images=images, texts={"words": TEXTS})
    assert features.vector_lengths == (5, 4)
    assert features.made_by == "colour+shape | words 4"
    pairs = features.pair_vectors(np.array([1, 0]))
    assert pairs.dtype == np.float32
    for vector, key in zip(pairs.reshape(4, 5), ROWS[1].images + ROWS[0].images, strict=True):
        joined = np.concatenate([vector_of(COLOUR, key), vector_of(SHAPE, key)])
        np.testing.assert_allclose(vector, joined.astype(np.float32) / 2**0.5, rtol=1e-6)
    for vector, text in zip(features.text_vectors(np.array([1, 0, 1])), "bab", strict=True):
        np.testing.assert_array_equal(vector, vector_of(TEXTS, text_key(text)))


@pytest.mark.parametrize(
    ("images", "texts", "what"),
    [
        ({}, {"words": TEXTS}, "images"),
        ({"perceptual-hash": HASH}, {"words": TEXTS}, "images"),
        ({"shape": SHAPE}, {}, "of its texts"),
        ({"shape": vectors(IMAGES[:4], 3)}, {"words": TEXTS}, "pairwright resume"),
        ({"shape": SHAPE}, {"words": FEW}, "pairwright resume"),
    ],
)
def test_missing_vectors_are_a_matter_of_the_dataset(images, texts, what):
    with pytest.raises(ConfigError, match=what):
        map_features(ROWS, POOL, images=images, texts=texts)
