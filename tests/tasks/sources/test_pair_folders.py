"""Traps of folders of pairs: places for numbers, names by others' scripts, shared ids."""

from functools import partial

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, make_key
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import (
    cut,
    put,
    write_clevr_change,
    write_clevr_dc,
    write_image_editing_request,
    write_spot_the_diff,
)
from tests.fixtures.sources import Source

change = partial(Source, "clevr-change")
dc = partial(Source, "clevr-dc")
spot = partial(Source, "spot-the-diff")
edit = partial(Source, "image-editing-request")


def test_change_and_distractor_are_pairs_with_captions_and_type(tmp_path) -> None:
    write_clevr_change(tmp_path)
    pairs = change(tmp_path).pairs()
    pair, distractor = pairs["000001.png"], pairs["000001.png_n"]
    assert (pair.first, pair.second) == (make_key(cut(1)), make_key(cut(1, changed=True)))
    assert pair.human_differences == ("the cube 000001 moved", "cube 000001 is elsewhere")
    assert (pair.origin, pair.change_types, pair.instruction) == ("given", ("move",), "")
    assert (distractor.first, distractor.second) == (make_key(cut(1)), make_key(cut(11)))
    assert distractor.human_differences == ("nothing was modified", "no change")
    assert distractor.change_types == ("no_change",)


@pytest.mark.parametrize(
    ("splits", "names"),
    [
        (["train"], ["000004.png", "000004.png_n", "000000.png", "000000.png_n"]),
        (["test", "val"], ["000001.png", "000001.png_n", "000003.png", "000003.png_n"]),
    ],
)
def test_a_split_names_places_in_the_sorted_list(tmp_path, splits, names) -> None:
    """The list is 0, 1, 3, 4: place 3 is number 4, and place 2 is number 3."""
    write_clevr_change(tmp_path)
    assert list(change(tmp_path, splits=splits).pairs()) == names


def test_places_stay_the_same_where_only_some_images_were_copied(tmp_path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "images/CLEVR_default_000001.png").unlink()
    put(tmp_path, "images/thumbs.db", b"")
    source = change(tmp_path)
    assert list(source.reasons()) == ["000001.png", "000001.png_n"]
    assert source.names()[6:] == ["000003.png", "000003.png_n"]


def test_places_out_of_range_are_dropped(tmp_path) -> None:
    write_clevr_change(tmp_path)
    put(tmp_path, "splits.json", {"train": [0, 4, -1, True, "1", 1.0, None, [0]]})
    source = change(tmp_path)
    refused = [row for row in source.read() if isinstance(row, Dropped)]
    assert [row.reason for row in refused] == ["split names no image"] * 7
    assert refused[0].detail == "splits.json train: train names place 4 of 4"
    assert len(source.pairs()) == 2


def test_types_may_be_missing_but_splits_must_be_lists(tmp_path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "type_mapping.json").unlink()
    assert change(tmp_path).pairs()["000001.png"].change_types == ()
    put(tmp_path, "splits.json", {"train": 3})
    with pytest.raises(SourceError, match=r"splits\.json: train .*list"):
        change(tmp_path).items()
    (tmp_path / "splits.json").unlink()
    with pytest.raises(SourceError, match=r"splits\.json$"):
        change(tmp_path).items()


def test_the_unpacked_archive_is_read_and_recognised(tmp_path) -> None:
    write_clevr_change(tmp_path / "data")
    pairs = change(tmp_path).pairs()
    assert len(pairs) == 8
    for path in (tmp_path, tmp_path / "data"):
        assert recognise_source(str(path)) == f"clevr-change:{path}"
    moved = change(tmp_path, images=str(tmp_path / "data")).pairs()
    assert [pair.key for pair in moved.values()] == [pair.key for pair in pairs.values()]


@pytest.mark.parametrize("padded", [False, True])
def test_both_layouts_give_the_same_pairs(padded, tmp_path) -> None:
    write_clevr_dc(tmp_path, padded=padded)
    pairs = dc(tmp_path).pairs()
    assert {name: pair.human_differences for name, pair in pairs.items()} == {
        "000010.png": ("the ball is gone",),
        "000000.png": ("the ball turned red",),
        "000002.png": ("a cube was added",),
        "000047.png": ("The scene remains the same.", "no change was made"),
    }
    both = [(pair.first, pair.second) for pair in pairs.values()]
    assert both == [(make_key(cut(n)), make_key(cut(n + 1))) for n in (10, 0, 2, 47)]


def test_pairs_in_which_nothing_was_done_are_told_by_their_captions(tmp_path) -> None:
    write_clevr_dc(tmp_path)
    assert recognise_source(str(tmp_path)) == f"clevr-dc:{tmp_path}"
    both = ["no change was made", "the ball moved"]
    put(tmp_path, "captions.json", {"0": both, "2.png": ["nothing has changed"], "10": []})
    types = {name: pair.change_types for name, pair in dc(tmp_path).pairs().items()}
    assert types == {
        **dict.fromkeys(("000010.png", "000000.png", "000047.png"), ()),
        "000002.png": ("no_change",),
    }


def test_bad_numbers_and_captions_are_dropped(tmp_path) -> None:
    write_clevr_dc(tmp_path)
    put(tmp_path, "captions.json", {"0": "one text", "2": [3], "x.png": ["?"], "10": None})
    put(tmp_path, "split.json", {"train": [0, 2, -1, "47", False, 10**12, 10, 99]})
    source = dc(tmp_path)
    reasons = [row.reason for row in source.read() if isinstance(row, Dropped)]
    assert sorted(reasons) == [
        *["captions are not texts"] * 2,
        "missing file",
        *["split names no image"] * 4,
    ]
    assert source.pairs()["000000.png"].human_differences == ("one text",)


def test_records_of_one_id_are_one_pair_with_all_sentences(tmp_path) -> None:
    write_spot_the_diff(tmp_path)
    pairs = spot(tmp_path, splits=["train"]).pairs()
    assert {name: pair.human_differences for name, pair in pairs.items()} == {
        "12998": ("a car has left", "two people came", "the gate is open"),
        "7": ("the truck is gone",),
        "12": (),  # its only sentence is blank; the pair is still one
    }
    *images, pair = spot(tmp_path).rows()["12998"]
    names = ["resized_images/12998.png", "resized_images/12998_2.png"]
    assert [row.name for row in images if isinstance(row, ImageRow)] == names
    keys = [make_key(cut(2, size=(56, 56), changed=changed)) for changed in (False, True)]
    assert [pair.first, pair.second, pair.origin] == [*keys, "given"]


def test_bad_records_of_spot_the_diff_are_dropped_by_their_number(tmp_path) -> None:
    write_spot_the_diff(tmp_path)
    records = [
        {"img_id": "../../etc/passwd", "sentences": []},
        "no record",
        {"img_id": 40, "sentences": ["as a number"]},
        {"img_id": "41", "sentences": [["x"]]},
        {"img_id": "99", "sentences": ["no file"]},
    ]
    put(tmp_path, "annotations/val.json", records)
    source = spot(tmp_path, splits=["val"])
    assert source.reasons() == {
        "val.json record 1": "no img_id",
        "val.json record 2": "no record",
        "41": "captions are not texts",
        "99": "missing file",
    }
    assert source.pairs()["40"].human_differences == ("as a number",)


def test_one_split_is_enough_but_lists_of_another_name_are_not(tmp_path) -> None:
    write_spot_the_diff(tmp_path)
    for name in ("train", "val"):
        (tmp_path / f"annotations/{name}.json").unlink()
    assert list(spot(tmp_path).pairs()) == ["41"]
    (tmp_path / "annotations/test.json").rename(tmp_path / "annotations/valid.json")
    with pytest.raises(SourceError, match=r"annotations/train\.json, annotations/val\.json"):
        spot(tmp_path).items()


def test_requests_are_differences_and_the_first_is_the_instruction(tmp_path) -> None:
    write_image_editing_request(tmp_path)
    pairs = edit(tmp_path).pairs()
    assert pairs["Zhopped_1"].human_differences == ("remove the flag",)
    pair = pairs["Zhopped_3"]
    assert pair.human_differences == ("make it pop", "brighten", "more contrast")
    assert pair.instruction == "make it pop"
    assert {pair.origin for pair in pairs.values()} == {"edit"}
    jpegs = [make_key(cut(2, kind="JPEG", changed=changed)) for changed in (False, True)]
    assert [pair.first, pair.second] == jpegs


def test_images_beside_the_lists_and_in_the_repository_are_found(tmp_path) -> None:
    folder = tmp_path / "dataset/adobe"
    write_image_editing_request(folder)
    assert len(edit(tmp_path).pairs()) == 4
    for path in (folder / "images").iterdir():
        path.rename(folder / path.name)
    (folder / "images").rmdir()
    assert len(edit(tmp_path).pairs()) == 4


def test_bad_records_of_image_editing_request_are_dropped_by_their_number(tmp_path) -> None:
    write_image_editing_request(tmp_path)
    good = {"img0": "c_a.png", "img1": "c_b.jpg", "uid": "u"}
    records = [
        {**good, "img0": "../secret.png"},
        [],
        {**good, "sents": [1]},
        {**good, "img1": "c_a.png", "uid": "same"},
        {**good, "uid": None},
    ]
    put(tmp_path, "train.json", records)
    source = edit(tmp_path, splits=["train"])
    assert source.reasons() == {
        "train.json record 1": "path leaves the folder",
        "train.json record 2": "no record",
        "train.json record 3": "captions are not texts",
        "same": "identical images",
    }
    pair = source.pairs()["images/c_a.png images/c_b.jpg"]
    assert (pair.human_differences, pair.instruction) == ((), "")


@pytest.mark.parametrize(
    ("source", "write"),
    [
        pytest.param(change, write_clevr_change, id="clevr-change"),
        pytest.param(dc, write_clevr_dc, id="clevr-dc"),
        pytest.param(spot, write_spot_the_diff, id="spot-the-diff"),
        pytest.param(edit, write_image_editing_request, id="image-editing-request"),
    ],
)
def test_pairs_have_their_split_in_our_words(source, write, tmp_path) -> None:
    write(tmp_path)
    pairs = source(tmp_path).pairs()
    assert {pair.split for pair in pairs.values()} == {"train", "validation", "test"}
    held_out = source(tmp_path, splits=["test"]).pairs()
    assert held_out == {name: pair for name, pair in pairs.items() if pair.split == "test"}
    assert held_out
