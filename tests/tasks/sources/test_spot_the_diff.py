"""Spot-the-Diff's traps: records that share an img_id, blank sentences, three files per id."""

from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from tests.fixtures.layouts import cut, list_all, put, read_all, read_pairs, source_of, write_spot_the_diff

read = partial(read_pairs, "spot-the-diff")


def test_records_of_one_id_are_one_pair_with_all_sentences(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    pairs = read(tmp_path, splits=["train"])
    assert {name: pair.human_differences for name, pair in pairs.items()} == {
        "12998": ("a car has left", "two people came", "the gate is open"),
        "7": ("the truck is gone",),
        "12": (),  # its only sentence is blank; the pair is still one
    }


def test_the_second_image_is_the_later_one_and_the_difference_image_is_not_read(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    rows = read_all(source_of("spot-the-diff", tmp_path))
    names = [row.name for row in rows["12998"] if isinstance(row, ImageRow)]
    assert names == ["resized_images/12998.png", "resized_images/12998_2.png"]
    pair = rows["12998"][-1]
    assert isinstance(pair, PairRow)
    keys = [make_key(cut(2, size=(56, 56), changed=changed)) for changed in (False, True)]
    assert [pair.first, pair.second] == keys
    assert pair.origin == "given"


def test_bad_records_are_dropped_by_their_number(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    records = [
        {"img_id": "../../etc/passwd", "sentences": []},
        {"sentences": ["x"]},
        "no record",
        {"img_id": 40, "sentences": ["as a number"]},
        {"img_id": "41", "sentences": [["x"]]},
        {"img_id": "99", "sentences": ["no file"]},
    ]
    put(tmp_path, "annotations/val.json", records)
    found = read_all(source_of("spot-the-diff", tmp_path, splits=["val"]))
    reasons = {name: row.reason for name, (row, *_) in found.items() if isinstance(row, Dropped)}
    assert reasons == {
        "val.json record 1": "no img_id",
        "val.json record 2": "no img_id",
        "val.json record 3": "no record",
        "41": "captions are not texts",
        "99": "missing file",
    }
    assert read(tmp_path, splits=["val"])["40"].human_differences == ("as a number",)


def test_the_cloned_repository_is_read(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path / "clone" / "data")
    assert len(read(tmp_path / "clone")) == 5


def test_one_split_is_enough_but_lists_of_another_name_are_not(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    for name in ("train", "val"):
        (tmp_path / f"annotations/{name}.json").unlink()
    assert list(read(tmp_path)) == ["41"]
    (tmp_path / "annotations/test.json").rename(tmp_path / "annotations/valid.json")
    with pytest.raises(SourceError, match=r"annotations/train\.json, annotations/val\.json"):
        list_all(source_of("spot-the-diff", tmp_path))
