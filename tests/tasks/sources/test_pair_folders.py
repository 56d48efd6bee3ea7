"""Traps of the folders of pairs: places for numbers, names by others' scripts, shared ids, lying
endings."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import (
    cut,
    list_all,
    put,
    read_all,
    read_pairs,
    source_of,
    write_clevr_change,
    write_clevr_dc,
    write_image_editing_request,
    write_spot_the_diff,
)

read_change = partial(read_pairs, "clevr-change")
read_dc = partial(read_pairs, "clevr-dc")
read_spot = partial(read_pairs, "spot-the-diff")
read_edit = partial(read_pairs, "image-editing-request")


def test_change_and_distractor_are_pairs_with_captions_and_type(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    pairs = read_change(tmp_path)
    pair, distractor = pairs["000001.png"], pairs["000001.png_n"]
    assert (pair.first, pair.second) == (make_key(cut(1)), make_key(cut(1, changed=True)))
    assert pair.human_differences == ("the cube 000001 moved", "cube 000001 is elsewhere")
    assert (pair.origin, pair.change_types, pair.instruction) == ("given", ("move",), "")
    assert (distractor.first, distractor.second) == (make_key(cut(1)), make_key(cut(11)))
    assert distractor.human_differences == ("nothing was modified", "no change")
    assert distractor.change_types == ("no_change",)


def test_a_split_names_places_in_the_sorted_list(tmp_path: Path) -> None:
    """The list is 0, 1, 3, 4: place 3 is number 4, and place 2 is number 3."""
    write_clevr_change(tmp_path)
    assert list(read_change(tmp_path, splits=["train"])) == [
        "000004.png",
        "000004.png_n",
        "000000.png",
        "000000.png_n",
    ]
    assert list(read_change(tmp_path, splits=["test"])) == ["000003.png", "000003.png_n"]
    assert next(iter(read_change(tmp_path, splits=["test", "val"]))) == "000001.png"


def test_places_stay_the_same_where_only_some_images_were_copied(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "images/CLEVR_default_000001.png").unlink()
    put(tmp_path, "images/thumbs.db", b"")
    found = read_all(source_of("clevr-change", tmp_path))
    assert [name for name, rows in found.items() if isinstance(rows[0], Dropped)] == [
        "000001.png",
        "000001.png_n",
    ]
    assert list(found)[6:] == ["000003.png", "000003.png_n"]


def test_places_out_of_range_are_dropped(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    put(tmp_path, "splits.json", {"train": [0, 4, -1, True, "1", 1.0, None, [0]]})
    rows = [
        row for found in read_all(source_of("clevr-change", tmp_path)).values() for row in found
    ]
    refused = [row for row in rows if isinstance(row, Dropped)]
    assert [row.reason for row in refused] == ["split names no image"] * 7
    assert refused[0].detail == "splits.json train: train names place 4 of 4"
    assert sum(isinstance(row, PairRow) for row in rows) == 2


def test_types_may_be_missing_but_splits_may_not(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "type_mapping.json").unlink()
    assert read_change(tmp_path)["000001.png"].change_types == ()
    put(tmp_path, "splits.json", {"train": 3})
    with pytest.raises(SourceError, match=r"splits\.json: train .*list"):
        read_change(tmp_path)
    (tmp_path / "splits.json").unlink()
    with pytest.raises(SourceError, match=r"splits\.json$"):
        read_change(tmp_path)


def test_the_unpacked_archive_is_read_and_recognised(tmp_path: Path) -> None:
    write_clevr_change(tmp_path / "clevr" / "data")
    assert len(read_change(tmp_path / "clevr")) == 8
    assert recognise_source(str(tmp_path / "clevr")) == f"clevr-change:{tmp_path / 'clevr'}"
    assert (
        recognise_source(str(tmp_path / "clevr/data")) == f"clevr-change:{tmp_path / 'clevr/data'}"
    )
    moved = read_change(tmp_path / "clevr", images=str(tmp_path / "clevr" / "data"))
    assert [pair.key for pair in moved.values()] == [
        pair.key for pair in read_change(tmp_path / "clevr").values()
    ]


@pytest.mark.parametrize("padded", [False, True])
def test_both_layouts_give_the_same_pairs(padded: bool, tmp_path: Path) -> None:
    write_clevr_dc(tmp_path, padded=padded)
    assert padded or recognise_source(str(tmp_path)) == f"clevr-dc:{tmp_path}"
    pairs = read_dc(tmp_path)
    assert list(pairs) == ["000010.png", "000000.png", "000002.png", "000047.png"]
    assert [pair.human_differences for pair in pairs.values()] == [
        ("the ball is gone",),
        ("the ball turned red",),
        ("a cube was added",),
        ("The scene remains the same.", "no change was made"),
    ]
    both = [(pair.first, pair.second) for pair in pairs.values()]
    assert both == [(make_key(cut(n)), make_key(cut(n + 1))) for n in (10, 0, 2, 47)]


def test_pairs_in_which_nothing_was_done_are_told_by_their_captions(tmp_path: Path) -> None:
    write_clevr_dc(tmp_path)
    texts = [["no change was made", "the ball moved"], ["nothing has changed"], []]
    put(tmp_path, "captions.json", dict(zip(("0", "2.png", "10"), texts, strict=True)))
    pairs = read_dc(tmp_path)
    types = {name: pair.change_types for name, pair in pairs.items()}
    assert types == {
        "000010.png": (),
        "000000.png": (),
        "000002.png": ("no_change",),
        "000047.png": (),
    }


def test_bad_numbers_and_captions_are_dropped(tmp_path: Path) -> None:
    write_clevr_dc(tmp_path)
    put(tmp_path, "captions.json", {"0": "one text", "2": [3], "x.png": ["?"], "10": None})
    put(tmp_path, "split.json", {"train": [0, 2, -1, "47", False, 10**12, 10, 99]})
    found = read_all(source_of("clevr-dc", tmp_path))
    reasons = [row.reason for rows in found.values() for row in rows if isinstance(row, Dropped)]
    assert sorted(reasons) == [
        *["captions are not texts"] * 2,
        "missing file",
        *["split names no image"] * 4,
    ]
    assert read_dc(tmp_path)["000000.png"].human_differences == ("one text",)


def test_records_of_one_id_are_one_pair_with_all_sentences(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    pairs = read_spot(tmp_path, splits=["train"])
    assert {name: pair.human_differences for name, pair in pairs.items()} == {
        "12998": ("a car has left", "two people came", "the gate is open"),
        "7": ("the truck is gone",),
        "12": (),  # its only sentence is blank; the pair is still one
    }


def test_second_image_is_the_later_and_difference_image_unread(
    tmp_path: Path,
) -> None:
    write_spot_the_diff(tmp_path)
    rows = read_all(source_of("spot-the-diff", tmp_path))
    names = [row.name for row in rows["12998"] if isinstance(row, ImageRow)]
    assert names == ["resized_images/12998.png", "resized_images/12998_2.png"]
    pair = rows["12998"][-1]
    keys = [make_key(cut(2, size=(56, 56), changed=changed)) for changed in (False, True)]
    assert [pair.first, pair.second, pair.origin] == [*keys, "given"]


def test_bad_records_are_dropped_by_their_number_of_spot_the_diff(tmp_path: Path) -> None:
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
    told = dict.fromkeys(("val.json record 1", "val.json record 2"), "no img_id")
    told |= {"val.json record 3": "no record", "41": "captions are not texts", "99": "missing file"}
    assert reasons == told
    assert read_spot(tmp_path, splits=["val"])["40"].human_differences == ("as a number",)


def test_one_split_is_enough_but_lists_of_another_name_are_not(tmp_path: Path) -> None:
    write_spot_the_diff(tmp_path)
    for name in ("train", "val"):
        (tmp_path / f"annotations/{name}.json").unlink()
    assert list(read_spot(tmp_path)) == ["41"]
    (tmp_path / "annotations/test.json").rename(tmp_path / "annotations/valid.json")
    with pytest.raises(SourceError, match=r"annotations/train\.json, annotations/val\.json"):
        list_all(source_of("spot-the-diff", tmp_path))


def test_requests_are_differences_and_the_first_is_the_instruction(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path)
    pairs = read_edit(tmp_path)
    assert pairs["Zhopped_1"].human_differences == ("remove the flag",)
    assert pairs["Zhopped_3"].human_differences == ("make it pop", "brighten", "more contrast")
    assert pairs["Zhopped_3"].instruction == "make it pop"
    assert {pair.origin for pair in pairs.values()} == {"edit"}
    jpeg = [make_key(cut(2, kind="JPEG", changed=changed)) for changed in (False, True)]
    assert [pairs["Zhopped_3"].first, pairs["Zhopped_3"].second] == jpeg


def test_images_beside_the_lists_and_in_the_repository_are_found(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path / "clone/dataset/adobe")
    assert len(read_edit(tmp_path / "clone")) == 4
    for path in (tmp_path / "clone/dataset/adobe/images").iterdir():
        path.rename(path.parent.parent / path.name)
    (tmp_path / "clone/dataset/adobe/images").rmdir()
    assert len(read_edit(tmp_path / "clone")) == 4


def test_bad_records_are_dropped_by_their_number_of_image_editing_request(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path)
    good = {"img0": "c_a.png", "img1": "c_b.jpg", "uid": "u"}
    records = [
        {**good, "img0": "../secret.png"},
        {**good, "img1": "/etc/passwd"},
        {**good, "img0": 3},
        [],
        {**good, "sents": [1]},
        {**good, "img1": "c_a.png", "uid": "same"},
        {**good, "uid": None},
    ]
    put(tmp_path, "train.json", records)
    found = read_all(source_of("image-editing-request", tmp_path, splits=["train"]))
    reasons = {name: row.reason for name, (row, *_) in found.items() if isinstance(row, Dropped)}
    told = [
        *["path leaves the folder"] * 2,
        "no path of an image",
        "no record",
        "captions are not texts",
    ]
    numbered = {f"train.json record {number}": reason for number, reason in enumerate(told, 1)}
    assert reasons == {**numbered, "same": "identical images"}
    pair = found["images/c_a.png images/c_b.jpg"][-1]
    assert (pair.human_differences, pair.instruction) == ((), "")


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("clevr-change", write_clevr_change),
        ("clevr-dc", write_clevr_dc),
        ("spot-the-diff", write_spot_the_diff),
        ("image-editing-request", write_image_editing_request),
    ],
)
def test_pairs_have_their_split_in_our_words(
    kind: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path)
    pairs = read_pairs(kind, tmp_path)
    assert {pair.split for pair in pairs.values()} == {"train", "validation", "test"}
    held_out = read_pairs(kind, tmp_path, splits=["test"])
    assert {pair.split for pair in held_out.values()} == {"test"}
    assert held_out == {name: pair for name, pair in pairs.items() if pair.split == "test"}
