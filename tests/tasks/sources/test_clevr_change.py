"""CLEVR-Change's traps: splits are places, not numbers; two pairs a place; captions under the default image's name."""

from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, PairRow, make_key
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import cut, put, read_all, read_pairs, source_of, write_clevr_change

read = partial(read_pairs, "clevr-change")


def test_a_change_is_a_pair_with_its_captions_and_type(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    pair = read(tmp_path)["000001.png"]
    assert (pair.first, pair.second) == (make_key(cut(1)), make_key(cut(1, changed=True)))
    assert pair.human_differences == ("the cube 000001 moved", "cube 000001 is elsewhere")
    assert (pair.origin, pair.change_types, pair.instruction) == ("given", ("move",), "")


def test_a_distractor_is_a_pair_with_the_captions_of_no_change(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    pair = read(tmp_path)["000001.png_n"]
    assert (pair.first, pair.second) == (make_key(cut(1)), make_key(cut(11)))
    assert pair.human_differences == ("nothing was modified", "no change")
    assert pair.change_types == ("no_change",)


def test_only_a_distractor_may_show_the_same_image_twice(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    put(tmp_path, "sc_images/CLEVR_semantic_000000.png", cut(0))
    found = read_all(source_of("clevr-change", tmp_path))
    (refused,) = found["000000.png"]
    assert isinstance(refused, Dropped)
    assert refused.reason == "identical images"
    image, pair = found["000000.png_n"]
    assert isinstance(image, ImageRow)
    assert isinstance(pair, PairRow)
    assert pair.first == pair.second == image.key == make_key(cut(0))


def test_a_split_names_places_in_the_sorted_list(tmp_path: Path) -> None:
    """The list is 0, 1, 3, 4: place 3 is number 4, and place 2 is number 3."""
    write_clevr_change(tmp_path)
    assert list(read(tmp_path, splits=["train"])) == ["000004.png", "000004.png_n", "000000.png", "000000.png_n"]
    assert list(read(tmp_path, splits=["test"])) == ["000003.png", "000003.png_n"]
    assert next(iter(read(tmp_path, splits=["test", "val"]))) == "000001.png"


def test_places_stay_the_same_where_only_some_images_were_copied(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "images/CLEVR_default_000001.png").unlink()
    put(tmp_path, "images/thumbs.db", b"")
    found = read_all(source_of("clevr-change", tmp_path))
    assert [name for name, rows in found.items() if isinstance(rows[0], Dropped)] == ["000001.png", "000001.png_n"]
    assert list(found)[6:] == ["000003.png", "000003.png_n"]


def test_places_out_of_range_are_dropped(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    put(tmp_path, "splits.json", {"train": [0, 4, -1, True, "1", 1.0, None, [0]]})
    rows = [row for found in read_all(source_of("clevr-change", tmp_path)).values() for row in found]
    refused = [row for row in rows if isinstance(row, Dropped)]
    assert [row.reason for row in refused] == ["split names no image"] * 7
    assert refused[0].detail == "splits.json train: train names place 4 of 4"
    assert sum(isinstance(row, PairRow) for row in rows) == 2


def test_types_may_be_missing_but_splits_may_not(tmp_path: Path) -> None:
    write_clevr_change(tmp_path)
    (tmp_path / "type_mapping.json").unlink()
    assert read(tmp_path)["000001.png"].change_types == ()
    put(tmp_path, "splits.json", {"train": 3})
    with pytest.raises(SourceError, match=r"splits\.json: train .*list"):
        read(tmp_path)
    (tmp_path / "splits.json").unlink()
    with pytest.raises(SourceError, match=r"splits\.json$"):
        read(tmp_path)


def test_the_unpacked_archive_is_read_and_recognised(tmp_path: Path) -> None:
    write_clevr_change(tmp_path / "clevr" / "data")
    assert len(read(tmp_path / "clevr")) == 8
    assert recognise_source(str(tmp_path / "clevr")) == f"clevr-change:{tmp_path / 'clevr'}"
    assert recognise_source(str(tmp_path / "clevr/data")) == f"clevr-change:{tmp_path / 'clevr/data'}"
    moved = read(tmp_path / "clevr", images=str(tmp_path / "clevr" / "data"))
    assert [pair.key for pair in moved.values()] == [pair.key for pair in read(tmp_path / "clevr").values()]
