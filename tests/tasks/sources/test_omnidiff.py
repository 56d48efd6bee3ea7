"""Our neutral form: captions in the singular and plural, change types, scenes as groups, bad lines."""

import os
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from tests.fixtures.layouts import cut, list_all, put_lines, read_all, source_of, write_omnidiff

GOOD = {"id": "good", "image1": "real/0_a.png", "image2": "real/0_b.jpg"}


def test_a_line_is_a_pair_with_all_that_it_says(tmp_path: Path) -> None:
    write_omnidiff(tmp_path)
    found = read_all(source_of("omnidiff", tmp_path))
    first, second, pair = found["0"]
    assert isinstance(pair, PairRow)
    assert (pair.first, pair.second) == (make_key(cut(0)), make_key(cut(0, kind="JPEG", changed=True)))
    assert (pair.human_differences, pair.change_types) == (("A chair came.",), ("addition", "viewpoint"))
    assert {row.group for row in (first, second) if isinstance(row, ImageRow)} == {"real/office-3"}
    other = found["1"][-1]
    assert isinstance(other, PairRow)
    assert (other.human_differences, other.change_types) == (("A lamp is off.", "It is dark."), ("illumination",))
    assert {row.group for row in found["1"] if isinstance(row, ImageRow)} == {"real/7"}


@pytest.mark.parametrize(
    ("types", "kept"), [(["no_change"], True), ("no_change", True), ([], False), (["pose"], False)]
)
def test_only_where_nothing_changed_may_both_be_one_file(types: object, kept: bool, tmp_path: Path) -> None:
    write_omnidiff(tmp_path)
    put_lines(tmp_path, "test.jsonl", {**GOOD, "image2": GOOD["image1"], "change_types": types})
    found = read_all(source_of("omnidiff", tmp_path, splits=["test"]))["good"]
    assert isinstance(found[-1], PairRow if kept else Dropped)


def test_files_are_splits_and_one_file_is_a_source(tmp_path: Path) -> None:
    write_omnidiff(tmp_path)
    (tmp_path / ".hidden.jsonl").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.jsonl")
    names = [item.name for item in list_all(source_of("omnidiff", tmp_path, splits=["train"]))]
    assert names == [item.name for item in list_all(source_of("omnidiff", tmp_path / "train.jsonl"))] == ["0", "1"]
    assert len(read_all(source_of("omnidiff", tmp_path / "train.jsonl"))["0"]) == 3


def test_bad_lines_are_dropped_by_their_number(tmp_path: Path) -> None:
    write_omnidiff(tmp_path)
    bad = [
        b"{",
        {**GOOD, "image1": "../a.png"},
        {"image1": "real/0_a.png"},
        {**GOOD, "caption": 7},
        {**GOOD, "change_types": [1]},
        {**GOOD, "scene": {"a": 1}},
        {**GOOD, "id": "x" * 1001},
    ]
    put_lines(tmp_path, "train.jsonl", *bad, b"  ", GOOD)
    found = read_all(source_of("omnidiff", tmp_path, splits=["train"]))
    reasons = [row.reason for rows in found.values() for row in rows if isinstance(row, Dropped)]
    assert reasons == [
        *("damaged line", "path leaves the folder", "no path of an image", "captions are not texts"),
        *("captions are not texts", "damaged field", "damaged field"),
    ]
    assert list(found) == [*(f"train.jsonl line {number}" for number in range(1, 8)), "good"]
    assert len(found["good"]) == 3


def test_a_file_without_any_pair_is_a_source_error(tmp_path: Path) -> None:
    write_omnidiff(tmp_path)
    put_lines(tmp_path, "train.jsonl", {"image": "a.png"})
    with pytest.raises(SourceError, match=r"train\.jsonl"):
        list_all(source_of("omnidiff", tmp_path))
