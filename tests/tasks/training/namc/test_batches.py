"""Batches of frozen rows: which rows can be learnt from, what they are shown, and in which order."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch

from pairwright.schemas.errors import StoreError
from pairwright.tasks.models.namc_words import ClipWords, learnt_words
from pairwright.tasks.training.namc.batches import Batches, Pictures, read_rows, small_sizes, to_codes, to_patches
from pairwright.tasks.training.namc.frozen import open_frozen

TEMPLATE = (
    "The difference between the two images is that the first image shows {}, while the second image shows a door."
)


def row(name: str, *images: str, **values: Any) -> dict[str, Any]:
    made = {"key": name, "split": "train", "chosen": TEMPLATE.format(name), "images": images}
    return made | values


def freeze(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    known, widths = {"0": True, "1": True, "2": True, "torn": False}, {"grids": 4, "codes": 60_000}
    (folder / "about.json").write_text(json.dumps({"images": known, "side": 0, "widths": widths}))
    np.save(folder / "grids.npy", np.arange(4 * 196 * 4).astype(np.float16).reshape(4, 196, 4))
    np.save(folder / "codes.npy", np.full((4, 196), 50_000, dtype=np.uint16))


def test_rows_are_opened_by_their_images(tmp_path: Path) -> None:
    freeze(
        tmp_path,
        row("a dog", "2", "0"),
        row("a cat", "1", "torn"),
        row("a cup", "0", "1", chosen="It is darker."),
        row("a pen", "0"),
        row("a hat", "0", "1", split="test"),
        row("a box", "1", "2"),
    )
    frozen = open_frozen(tmp_path)
    texts, sides, refused = read_rows(frozen, "train", halves=True)
    assert [text.key for text in texts] == ["a dog", "a box"]
    assert [(one.key, one.reason) for one in refused] == [
        ("a cat", "an image could not be encoded"),
        ("a cup", "no implicit-change description"),
        ("a pen", "not about two images"),
    ]
    seen = Pictures(frozen, sides, lambda crops: crops).features([1, 0])
    assert np.array_equal(seen.numpy(), np.load(tmp_path / "grids.npy")[[[1, 2], [2, 0]]])
    assert Pictures(frozen, sides).see([0])["pixels"].numel() == 0
    assert len(read_rows(frozen, "train", halves=False, limit=2)[0]) <= 2
    (tmp_path / "about.json").unlink()
    with pytest.raises(StoreError, match="--name"):
        open_frozen(tmp_path)


def test_batches_ahead_are_those_made_one_by_one(tmp_path: Path) -> None:
    freeze(tmp_path, *(row(thing, "1", "2") for thing in ("a dog", "a cat", "a red ball", "two trees")))
    frozen = open_frozen(tmp_path)
    texts, sides, _ = read_rows(frozen, "train", halves=True)
    words = learnt_words([one.chosen for one in texts], size=200)
    clip = ClipWords(open_clip.get_tokenizer("ViT-B-32"))
    batches = Batches(texts, Pictures(frozen, sides), clip=clip, words=words, length=80)
    orders = [(0, 0.0, [3, 1]), (1, 0.5, [0]), (2, 1.0, [2, 0, 1])]
    found = list(batches.ahead(orders))
    assert [order for order, _ in found] == orders
    for (_, _, rows), (batch, identity) in found:
        one, same = batches.make(rows)
        assert torch.equal(identity, same)
        for field in fields(one):
            if (value := getattr(one, field.name)) is not None:
                assert torch.equal(getattr(batch, field.name), value), field.name
    steps = batches.ahead([orders[0], (1, 0.5, [9]), orders[2]])
    assert next(steps)[0] == orders[0]
    with pytest.raises(IndexError):
        next(steps)


def test_places_of_the_small_size_run_along_rows() -> None:
    """The patch in the first row and second column is place 1: red 255 there gives code 3 x 16."""
    image = np.zeros((64, 64, 3), np.uint8)
    image[:8, 8:16, 0] = 255
    image[8:16, :8] = [0, 64, 128]
    crops = torch.from_numpy(image)[None]
    codes, patches, sizes = to_codes(crops)[0], to_patches(crops)[0], small_sizes(500)
    assert (codes[1], codes[8], codes.count_nonzero()) == (3 * 16, 1 * 4 + 2, 2)
    assert (sizes.places, sizes.features, sizes.codes) == (*patches.shape, 64)
    assert patches[1].reshape(8, 8, 3)[..., 0].eq(1).all()
    assert patches[0].eq(-1).all()
