"""Vectors by row and by text; what is missing is named."""

import numpy as np
import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.vectors import Vectors
from pairwright.tasks.training.embed_chosen_texts import text_key
from pairwright.tasks.training.retriever.candidate_pool import PoolEntry, make_pool
from pairwright.tasks.training.retriever.material import map_features

IMAGES = [make_key("image", number) for number in range(5)]


def vectors(keys, size, seed=0):
    names = np.array(sorted(key.encode() for key in keys), dtype="S32")
    matrix = np.random.default_rng(seed).normal(size=(len(names), size)).astype(np.float16)
    return Vectors(names, matrix, np.ones(len(names), dtype=np.float32))


def entry(number, first, last, text):
    return PoolEntry(
        key=make_key(number),
        pair=str(number),
        chosen=text,
        images=(IMAGES[first], IMAGES[last]),
        in_pool=True,
        no_change=False,
    )


ROWS = [entry(0, 3, 1, "b"), entry(1, 4, 4, "a")]  # the second row has one image
POOL = make_pool(ROWS)
TEXTS = {"words": vectors([text_key("a"), text_key("b"), text_key("unused")], 4)}


def test_all_embedders_but_the_hash_of_copies_stand_side_by_side():
    images = {
        name: vectors(IMAGES, size, size)
        for name, size in (("shape", 3), ("colour", 2), ("perceptual-hash", 7))
    }
    features = map_features(ROWS, POOL, images=images, texts=TEXTS)
    assert features.sizes == (5, 4)
    assert features.made_by == "colour+shape | words 4"
    found = features.pairs(np.array([1, 0]))
    assert found.dtype == np.float32
    for row, entry_ in enumerate((ROWS[1], ROWS[0])):
        for side, key in enumerate(entry_.images):
            parts = [
                images[name].matrix[images[name].rows_of([key])[0]] for name in ("colour", "shape")
            ]
            np.testing.assert_allclose(
                found[row, side], np.concatenate(parts).astype(np.float32) / 2**0.5, rtol=1e-6
            )
    words = features.words(np.array([1, 0, 1]))
    for place, text in enumerate("bab"):
        np.testing.assert_array_equal(
            words[place], TEXTS["words"].matrix[TEXTS["words"].rows_of([text_key(text)])[0]]
        )


@pytest.mark.parametrize(
    ("images", "texts", "what"),
    [
        ({}, TEXTS, "images"),
        ({"perceptual-hash": vectors(IMAGES, 7)}, TEXTS, "images"),
        ({"shape": vectors(IMAGES, 3)}, {}, "of its texts"),
        ({"shape": vectors(IMAGES[:4], 3)}, TEXTS, "pairwright resume"),
        (
            {"shape": vectors(IMAGES, 3)},
            {"words": vectors([text_key("a")], 4)},
            "pairwright resume",
        ),
    ],
)
def test_missing_vectors_are_a_matter_of_the_dataset(images, texts, what):
    with pytest.raises(ConfigError, match=what):
        map_features(ROWS, POOL, images=images, texts=texts)
