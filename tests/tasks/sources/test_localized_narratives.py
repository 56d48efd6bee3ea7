"""Localized Narratives' traps: an image's lines stand apart, lines are long, COCO's names have
twelve digits."""

import json
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow
from pairwright.tasks.sources import localized_narratives
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import (
    list_all,
    narrative,
    put_lines,
    read_all,
    source_of,
    write_localized_narratives,
)

COCO = "coco_train_localized_narratives-00000-of-00002.jsonl"


def read(root: Path, **reading: object) -> dict[str, ImageRow]:
    rows = read_all(source_of("localized-narratives", root, **reading))
    return {name: row for name, (row,) in rows.items() if isinstance(row, ImageRow)}


def test_an_image_is_one_row_with_the_captions_of_all_annotators(tmp_path: Path) -> None:
    write_localized_narratives(tmp_path)
    images = read(tmp_path)
    assert {name: row.captions for name, row in images.items()} == {
        "mscoco_train2017/285": (
            'A sign reads "stop", "timed_caption": it says.',
            "I can see a bear.",
        ),
        "mscoco_train2017/139": ("In this image there is a room.",),
        "open_images_train/fffabc0000000001": ("There is a boat.", "A boat on water."),
        "open_images_train/00a1b2c3d4e5f607": ("A person on a bench.",),
    }
    row = images["mscoco_train2017/139"]
    assert (row.name, row.format, row.licence) == ("images/train2017/000000000139.jpg", "jpeg", "")


def test_one_file_is_a_source_too(tmp_path: Path) -> None:
    write_localized_narratives(tmp_path)
    path = tmp_path / COCO
    assert list(read(path)) == ["mscoco_train2017/285", "mscoco_train2017/139"]
    assert recognise_source(str(path)) == f"localized-narratives:{path}"


def test_images_are_found_where_the_collections_unpack_them(tmp_path: Path) -> None:
    write_localized_narratives(tmp_path)
    (tmp_path / "images/train2017").rename(tmp_path / "train2017")
    (tmp_path / "images").rename(tmp_path / "open_images_train")
    assert len(read(tmp_path)) == 4
    for path in (tmp_path / "train2017").iterdir():
        path.rename(path.parent.parent / path.name)
    assert len(read(tmp_path)) == 4


def test_traces_are_not_parsed_unless_they_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_localized_narratives(tmp_path)
    parsed: list[bytes] = []
    parse = localized_narratives.parse_record
    monkeypatch.setattr(
        localized_narratives, "parse_record", lambda line: (parsed.append(line), parse(line))[1]
    )
    line = narrative("mscoco_train2017", "139", 7, "Another one.")
    other_order = {name: line[name] for name in reversed(line)}
    compact = json.dumps(line, separators=(",", ":")).encode()
    put_lines(tmp_path, "flickr30k_test_localized_narratives.jsonl", line, other_order, compact)
    config = source_of("localized-narratives", tmp_path, splits=["flickr30k_test"])
    (item,) = list_all(config)
    assert json.loads(item.locator)["captions"] == [["Another one."] * 3]
    assert [b"traces" in found for found in parsed] == [False, True, True]


def test_bad_lines_are_dropped_by_their_number(tmp_path: Path) -> None:
    write_localized_narratives(tmp_path)
    good = narrative("mscoco_train2017", "139", 1, "A room.")
    cut_off = json.dumps(good).encode()[:-20]
    bad = [
        cut_off,
        b'{"dataset_id": "a", "image_id',
        {**good, "image_id": "../139"},
        {**good, "dataset_id": ""},
        {**good, "caption": None},
        {**good, "caption": ["\ud800"]},
        [1],
    ]
    put_lines(tmp_path, COCO, *bad, good)
    found = read_all(source_of("localized-narratives", tmp_path, splits=["coco_train"]))
    reasons = [row.reason for rows in found.values() for row in rows if isinstance(row, Dropped)]
    assert reasons == [
        *("damaged line", "damaged line", "no dataset_id or image_id", "no dataset_id or image_id"),
        *("captions are not texts", "text is not Unicode", "no record"),
    ]
    assert list(found)[:2] == [f"{COCO} line 1", f"{COCO} line 2"]
    assert list(found)[7:] == ["mscoco_train2017/139", "mscoco_train2017/285"]


def test_a_file_without_any_narrative_is_a_source_error(tmp_path: Path) -> None:
    write_localized_narratives(tmp_path)
    put_lines(tmp_path, COCO, {"image": "a.jpg", "caption": "x"})
    with pytest.raises(SourceError, match=r"\.jsonl: .*dataset_id, image_id .*caption"):
        list_all(source_of("localized-narratives", tmp_path))
