"""An image's lines stand apart, lines are long, COCO's names have twelve digits."""

import json

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.tasks.sources import localized_narratives
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import narrative, put_lines, write_localized_narratives
from tests.fixtures.sources import Source

COCO = "coco_train_localized_narratives-00000-of-00002.jsonl"


@pytest.fixture
def folder(tmp_path):
    write_localized_narratives(tmp_path)
    return tmp_path


def narratives(path, **reading):
    return Source("localized-narratives", path, **reading)


def test_an_image_is_one_row_with_the_captions_of_all_annotators(folder) -> None:
    rows = {name: row for name, (row,) in narratives(folder).rows().items()}
    sign = 'A sign reads "stop", "timed_caption": it says.'
    assert {name: row.captions for name, row in rows.items()} == {
        "mscoco_train2017/285": (sign, "I can see a bear."),
        "mscoco_train2017/139": ("In this image there is a room.",),
        "open_images_train/fffabc0000000001": ("There is a boat.", "A boat on water."),
        "open_images_train/00a1b2c3d4e5f607": ("A person on a bench.",),
    }
    row = rows["mscoco_train2017/139"]
    assert (row.name, row.format, row.licence) == ("images/train2017/000000000139.jpg", "jpeg", "")
    path = folder / COCO
    assert list(narratives(path).keys()) == ["mscoco_train2017/285", "mscoco_train2017/139"]
    assert recognise_source(str(path)) == f"localized-narratives:{path}"


def test_images_are_found_where_the_collections_unpack_them(folder) -> None:
    (folder / "images/train2017").rename(folder / "train2017")
    (folder / "images").rename(folder / "open_images_train")
    assert len(narratives(folder).keys()) == 4
    for path in (folder / "train2017").iterdir():
        path.rename(folder / path.name)
    assert len(narratives(folder).keys()) == 4


def test_traces_are_not_parsed_unless_they_come_first(folder, monkeypatch) -> None:
    parsed = []
    parse = localized_narratives.parse_record
    monkeypatch.setattr(
        localized_narratives, "parse_record", lambda line: (parsed.append(line), parse(line))[1]
    )
    line = narrative("mscoco_train2017", "139", 7, "Another one.")
    other_order = {name: line[name] for name in reversed(line)}
    compact = json.dumps(line, separators=(",", ":")).encode()
    put_lines(folder, "flickr30k_test_localized_narratives.jsonl", line, other_order, compact)
    (item,) = narratives(folder, splits=["flickr30k_test"]).items()
    assert json.loads(item.locator)["captions"] == [["Another one."] * 3]
    assert [b"traces" in line for line in parsed] == [False, True, True]


GOOD = narrative("mscoco_train2017", "139", 1, "A room.")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(json.dumps(GOOD).encode()[:-20], "damaged line", id="cut off"),
        (b'{"dataset_id": "a", "image_id', "damaged line"),
        (GOOD | {"image_id": "../139"}, "no dataset_id or image_id"),
        (GOOD | {"caption": None}, "captions are not texts"),
        (GOOD | {"caption": ["\ud800"]}, "text is not Unicode"),
        ([1], "no record"),
    ],
)
def test_a_bad_line_is_dropped_by_its_number(folder, line, reason) -> None:
    put_lines(folder, COCO, GOOD, line, GOOD)
    source = narratives(folder, splits=["coco_train"])
    assert source.reasons() == {f"{COCO} line 2": reason}
    assert list(source.keys()) == ["mscoco_train2017/139", "mscoco_train2017/285"]


def test_a_file_without_any_narrative_is_a_source_error(folder) -> None:
    put_lines(folder, COCO, {"image": "a.jpg", "caption": "x"})
    with pytest.raises(SourceError, match=r"\.jsonl: .*dataset_id, image_id .*caption"):
        narratives(folder).items()
