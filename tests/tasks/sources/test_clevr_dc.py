"""CLEVR-DC's traps: ids with and without ".png", DIRL's names, pairs in which nothing was done."""

from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.rows import Dropped, PairRow, make_key
from pairwright.tasks.sources.readers import recognise_source
from tests.fixtures.layouts import cut, put, read_all, read_pairs, source_of, write_clevr_dc

read = partial(read_pairs, "clevr-dc")


@pytest.mark.parametrize("padded", [False, True])
def test_both_layouts_give_the_same_pairs(padded: bool, tmp_path: Path) -> None:
    write_clevr_dc(tmp_path, padded=padded)
    pairs = read(tmp_path)
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
    pairs = read(tmp_path)
    types = {name: pair.change_types for name, pair in pairs.items()}
    assert types == {"000010.png": (), "000000.png": (), "000002.png": ("no_change",), "000047.png": ()}


def test_only_there_may_the_images_be_the_same(tmp_path: Path) -> None:
    write_clevr_dc(tmp_path)
    for number in (10, 47):
        put(tmp_path, f"aft/{number}.png", cut(number))
    found = read_all(source_of("clevr-dc", tmp_path))
    (refused,) = found["000010.png"]
    assert isinstance(refused, Dropped)
    assert refused.reason == "identical images"
    assert isinstance(found["000047.png"][-1], PairRow)


def test_bad_numbers_and_captions_are_dropped(tmp_path: Path) -> None:
    write_clevr_dc(tmp_path)
    put(tmp_path, "captions.json", {"0": "one text", "2": [3], "x.png": ["?"], "10": None})
    put(tmp_path, "split.json", {"train": [0, 2, -1, "47", False, 10**12, 10, 99]})
    found = read_all(source_of("clevr-dc", tmp_path))
    reasons = [row.reason for rows in found.values() for row in rows if isinstance(row, Dropped)]
    assert sorted(reasons) == [*["captions are not texts"] * 2, "missing file", *["split names no image"] * 4]
    assert read(tmp_path)["000000.png"].human_differences == ("one text",)


def test_it_is_recognised(tmp_path: Path) -> None:
    write_clevr_dc(tmp_path)
    assert recognise_source(str(tmp_path)) == f"clevr-dc:{tmp_path}"
