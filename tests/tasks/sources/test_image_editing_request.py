"""Image-Editing-Request's traps: a split called "valid", mixed kinds of files, images of different sizes."""

from functools import partial
from pathlib import Path

from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from tests.fixtures.layouts import cut, put, read_all, read_pairs, source_of, write_image_editing_request

read = partial(read_pairs, "image-editing-request")


def test_requests_are_differences_and_the_first_is_the_instruction(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path)
    pairs = read(tmp_path)
    assert pairs["Zhopped_1"].human_differences == ("remove the flag",)
    assert pairs["Zhopped_3"].human_differences == ("make it pop", "brighten", "more contrast")
    assert pairs["Zhopped_3"].instruction == "make it pop"
    assert {pair.origin for pair in pairs.values()} == {"edit"}
    jpeg = [make_key(cut(2, kind="JPEG", changed=changed)) for changed in (False, True)]
    assert [pairs["Zhopped_3"].first, pairs["Zhopped_3"].second] == jpeg


def test_kinds_and_sizes_may_differ_and_endings_may_lie(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path)
    rows = read_all(source_of("image-editing-request", tmp_path))
    shown = [
        (row.format, row.width, row.height) for found in rows.values() for row in found if isinstance(row, ImageRow)
    ]
    assert shown == [
        *(("jpeg", 80, 60), ("png", 64, 48)),
        *(("jpeg", 80, 60), ("gif", 80, 60)),
        *(("jpeg", 64, 48), ("jpeg", 64, 48)),
        *(("jpeg", 64, 48), ("jpeg", 48, 64)),
    ]


def test_images_beside_the_lists_and_in_the_repository_are_found(tmp_path: Path) -> None:
    write_image_editing_request(tmp_path / "clone/dataset/adobe")
    assert len(read(tmp_path / "clone")) == 4
    for path in (tmp_path / "clone/dataset/adobe/images").iterdir():
        path.rename(path.parent.parent / path.name)
    (tmp_path / "clone/dataset/adobe/images").rmdir()
    assert len(read(tmp_path / "clone")) == 4


def test_bad_records_are_dropped_by_their_number(tmp_path: Path) -> None:
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
    assert reasons == {
        "train.json record 1": "path leaves the folder",
        "train.json record 2": "path leaves the folder",
        "train.json record 3": "no path of an image",
        "train.json record 4": "no record",
        "train.json record 5": "captions are not texts",
        "same": "identical images",
    }
    pair = found["images/c_a.png images/c_b.jpg"][-1]
    assert isinstance(pair, PairRow)
    assert (pair.human_differences, pair.instruction) == ((), "")
