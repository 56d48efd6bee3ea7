"""Pairs in two folders, with masks and captions; one golden sample against many."""

import json

import numpy as np
import pytest
from PIL import Image

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, PairRow, make_key
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import put
from tests.fixtures.pictures import encode, picture
from tests.fixtures.sources import Source


def mask(bright, *, value=255, size=(32, 24)):
    """Return a mask whose first columns are bright."""
    pixels = np.zeros((size[1], size[0]), np.uint8)
    pixels[:, :bright] = value
    return encode(Image.fromarray(pixels))


@pytest.mark.parametrize("names", [("before", "after"), ("A", "B"), ("Pre", "Post"), ("t1", "t2")])
def test_two_folders_are_paired_by_file_name(tmp_path, names) -> None:
    first, second = names
    for number in range(2):
        put(tmp_path, f"{first}/{number}.png", picture(number))
        put(tmp_path, f"{second}/{number}.jpg", picture(10 + number, kind="JPEG"))
    put(tmp_path, f"{first}/lost.png", picture(5))
    assert recognise_source(str(tmp_path)).startswith("folder-pairs:")
    source = Source("folder-pairs", tmp_path)
    rows = source.rows()
    assert list(rows) == ["0", "1", "lost"]
    before, after, pair = rows["1"]
    assert (before.key, after.key) == (pair.first, pair.second)
    assert before.key == make_key(picture(1))
    assert (pair.origin, pair.change_mask, pair.split) == ("given", "", "")
    assert source.reasons() == {"lost": "missing file"}


def test_masks_and_splits(tmp_path) -> None:
    for split in ("train", "val"):
        for name, seeds in {"A": (0, 1, 2), "B": (0, 11, 12)}.items():
            for number, seed in enumerate(seeds):
                put(tmp_path, f"{split}/{name}/{number}.png", picture(seed))
    put(tmp_path, "train/label/0.png", mask(0))
    put(tmp_path, "train/label/1.png", mask(8))
    put(tmp_path, "train/label/2.png", mask(8, value=1, size=(9, 9)))
    pairs = Source("folder-pairs", tmp_path).pairs()
    assert pairs["train/0"].change_types == ("no_change",)
    changed = decode_mask(Mask.model_validate_json(pairs["train/1"].change_mask))
    assert changed[:, :8].all()
    assert not changed[:, 8:].any()
    assert {name: pair.split for name, pair in pairs.items()} == {
        **dict.fromkeys(("train/0", "train/1", "train/2"), "train"),
        **dict.fromkeys(("val/1", "val/2"), "validation"),  # equal images without a mask
    }
    rows = Source("folder-pairs", tmp_path).rows()
    assert rows["train/2"][0].reason == "mask of another size"
    assert rows["train/2"][-1].change_mask == ""
    assert list(Source("folder-pairs", tmp_path, splits=("val",)).pairs()) == ["val/1", "val/2"]


def test_levir_cc_brings_its_captions(tmp_path) -> None:
    for name, seeds in {"A": (0, 1), "B": (0, 11)}.items():
        for number, seed in enumerate(seeds):
            put(tmp_path, f"images/train/{name}/train_{number}.png", picture(seed))
    texts = [{"raw": " a house is built . "}, {"raw": 7}]
    images = [
        {"filename": "train_0.png", "split": "train", "sentences": [], "changeflag": 0},
        {"filename": "train_1.png", "split": "train", "sentences": texts, "changeflag": 1},
    ]
    put(tmp_path, "LevirCCcaptions.json", json.dumps({"images": images}).encode())
    source = Source("folder-pairs", tmp_path)
    pairs = source.pairs()
    assert pairs["images/train/train_1"].human_differences == ("a house is built .",)
    assert pairs["images/train/train_0"].change_types == ("no_change",)
    assert source.rows()["images/train/train_1"][0].reason == "a field was not read"


def test_folders_of_other_names(tmp_path) -> None:
    for name, seed in {"good": 1, "new": 2, "old": 3}.items():
        put(tmp_path, f"{name}/0.png", picture(seed))
    assert recognise_source(str(tmp_path)).startswith("folder:")
    with pytest.raises(SourceError, match=r"reading\.folders"):
        Source("folder-pairs", tmp_path).items()
    (pair,) = Source("folder-pairs", tmp_path, folders=("good", "new")).pairs().values()
    assert (pair.first, pair.second) == (make_key(picture(1)), make_key(picture(2)))
    (tmp_path / "old/0.png").unlink()
    (tmp_path / "old").rmdir()
    assert len(Source("folder-pairs", tmp_path).pairs()) == 1


def test_a_golden_sample_is_paired_with_each(tmp_path) -> None:
    put(tmp_path, "boards/good.png", picture(0))
    for number in (1, 2, 3):
        put(tmp_path, f"boards/{number}.png", picture(number))
    put(tmp_path, "boards/same.png", picture(0))
    golden = str(tmp_path / "boards/good.png")
    source = Source("golden", tmp_path / "boards", golden=golden)
    rows = source.rows()
    assert list(rows) == ["1.png", "2.png", "3.png", "same.png"]
    pairs = source.pairs()
    assert {pair.first for pair in pairs.values()} == {make_key(picture(0))}
    assert pairs["2.png"].second == make_key(picture(2))
    assert source.reasons() == {"same.png": "identical images"}
    assert [type(row) for row in rows["1.png"]] == [ImageRow, ImageRow, PairRow]
    with pytest.raises(SourceError, match="--golden"):
        Source("golden", tmp_path / "boards").items()
    assert len(source.items(limit=2)) == 2
