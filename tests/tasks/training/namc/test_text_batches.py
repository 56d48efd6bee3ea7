"""Batches of frozen rows: which rows can be learnt from, what they are shown, and in which
order."""

from dataclasses import fields, replace

import numpy as np
import open_clip
import pytest
import torch

from pairwright.schemas.errors import StoreError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc_places import join_patches, split_patches, to_codes
from pairwright.tasks.models.namc_words import ClipWords, learnt_words
from pairwright.tasks.training.namc.captioner import small_sizes
from pairwright.tasks.training.namc.feature_tables import Copies, open_copies
from pairwright.tasks.training.namc.text_batches import TextBatches, collect_texts
from tests.fixtures.preferences_to_train import preference
from tests.fixtures.runs_to_train import write_run

TEMPLATE = (
    "The difference between the two images is that the first image shows {}, while the "
    "second image shows a door."
)
THINGS = ("a dog", "a cat", "a red ball", "two trees")


def row(number, chosen, **values):
    return replace(preference(number), **{"chosen": chosen, "split": "train"} | values)


def freeze(root, rows):
    return write_run(root, TrainConfig(objective="namc"), rows=rows).frozen_rows("train")


def test_rows_that_cannot_be_learnt_from_are_refused(tmp_path):
    rows = [
        row(0, TEMPLATE.format("a dog")),
        row(1, "It is darker."),
        replace(preference(2, images=1), split="train"),
        row(3, TEMPLATE.format("a hat"), split="test"),
        row(4, TEMPLATE.format("a box")),
    ]
    texts, refused = collect_texts(freeze(tmp_path, rows), halves=True)
    assert [text.position for text in texts] == [0, 3]
    expected = [(row.key, row.image_keys) for row in (rows[0], rows[4])]
    assert [(text.key, text.images) for text in texts] == expected
    reasons = {rows[1].key: "no implicit-change description", rows[2].key: "not about two images"}
    assert {row.key: row.reason for row in refused} == reasons


def test_no_more_texts_are_read_than_are_wanted(tmp_path):
    rows = [row(number, TEMPLATE.format(noun)) for number, noun in enumerate(THINGS)]
    assert len(collect_texts(freeze(tmp_path, rows), halves=False, limit=2)[0]) == 2


def test_a_run_without_tables_of_features_is_refused(tmp_path):
    with pytest.raises(StoreError, match="--name"):
        open_copies(tmp_path)


def test_batches_ahead_are_those_made_one_by_one(tmp_path):
    rows = [row(number, TEMPLATE.format(noun)) for number, noun in enumerate(THINGS)]
    texts, _ = collect_texts(freeze(tmp_path, rows), halves=True)
    keys = sorted({key for text in texts for key in text.images})
    grids = np.arange(len(keys) * 196 * 4).astype(np.float16).reshape(-1, 196, 4)
    codes = np.full((len(keys), 196), 50_000, dtype=np.uint16)
    numbers = {key: number for number, key in enumerate(keys)}
    copies = Copies(images=numbers, grids=grids, codes=codes)
    vocabulary = learnt_words([each.chosen for each in texts], size=200)
    clip = ClipWords(open_clip.get_tokenizer("ViT-B-32"))
    batches = TextBatches(
        texts, copies, clip=clip, words=vocabulary, length=80, show=lambda texts, features: features
    )
    orders = [[3, 1], [0], [2, 0, 1]]
    for order, batch in zip(orders, batches.ahead(orders), strict=True):
        alone = batches.make_batch(order)
        for field in fields(alone):
            assert torch.equal(getattr(batch, field.name), getattr(alone, field.name)), field.name
        assert (batch.codes == 50_000).all()
        expected = [[grids[keys.index(key)] for key in texts[number].images] for number in order]
        assert np.array_equal(batch.features.numpy(), np.array(expected))
        assert batch.texts[:, 1].unique().numel() == 1, "all end with a door"
    with pytest.raises(IndexError):
        list(batches.ahead([[9]]))


def test_places_of_the_small_size_run_along_rows():
    """The patch in the first row and second column is place 1: red 255 there gives code 3 x 16."""
    image = np.zeros((64, 64, 3), np.uint8)
    image[:8, 8:16, 0] = 255
    image[8:16, :8] = [0, 64, 128]
    patches = split_patches(image[None])
    codes, sizes = to_codes(patches)[0], small_sizes(500)
    assert (codes[1], codes[8], np.count_nonzero(codes)) == (3 * 16, 1 * 4 + 2, 2)
    assert (sizes.places, sizes.features, sizes.codes) == (*patches.shape[1:], 64)
    assert (patches[0, 1].reshape(8, 8, 3)[..., 0] == 255).all()
    joined = join_patches(torch.from_numpy(np.stack([patches, patches], 1)))
    assert np.array_equal(joined[0, 0].movedim(0, -1).numpy(), image)
