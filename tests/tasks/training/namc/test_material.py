"""Batches that are made ahead are those that are made one by one, in their order."""

from dataclasses import fields

import numpy as np
import open_clip
import pytest
import torch

from pairwright.prompts import difference_verbs
from pairwright.tasks.models.namc.words import ClipWords, learnt_words
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.namc.material import Batches, Crops, Material, Text
from pairwright.tasks.training.namc.pictures import TOKENIZER

THINGS = ("a dog", "a cat", "a red ball", "two trees")


def text(thing: str) -> Text:
    said = f"The difference between the two images is that the first image shows {thing}, while the second image "
    parts = read_difference(f"{said}shows a door.", difference_verbs())
    assert isinstance(parts, Difference)
    return Text(thing, f"{said}shows a door.", parts)


def test_batches_ahead() -> None:
    texts = [text(thing) for thing in THINGS]
    crops = np.random.default_rng(0).integers(0, 255, (len(texts), 2, 64, 64, 3), dtype=np.uint8)
    words = learnt_words([one.chosen for one in texts], size=200)
    clip = ClipWords(open_clip.get_tokenizer(TOKENIZER))
    batches = Batches(Material(texts, Crops(crops)), clip=clip, words=words, length=80)
    orders = [(0, 0.0, [3, 1]), (1, 0.5, [0]), (2, 1.0, [2, 0, 1])]
    found = list(batches.ahead(orders))
    assert [order for order, _ in found] == orders
    for (_, _, rows), (batch, identity) in found:
        one, same = batches.make(rows)
        assert torch.equal(identity, same)
        for field in fields(one):
            if (value := getattr(one, field.name)) is not None:
                assert torch.equal(getattr(batch, field.name), value), field.name
    assert list(batches.ahead([])) == []
    steps = batches.ahead([orders[0], (1, 0.5, [9]), orders[2]])
    assert next(steps)[0] == orders[0]
    with pytest.raises(IndexError):
        next(steps)
