"""ms-swift's rules for preferences, after its documentation of custom datasets, on what is
exported."""

import json
from dataclasses import replace
from pathlib import Path

from tests.fixtures.exports import export_some, preference


def lines(folder: Path, name: str) -> list[dict]:
    return [
        json.loads(line) for line in (folder / "data" / f"{name}.jsonl").read_text().splitlines()
    ]


def test_a_preference_that_rejects_both_gives_two_lines(tmp_path: Path) -> None:
    row = preference(1, rejected_images=2)
    tally = export_some(tmp_path / "out", [row], form="ms-swift")
    (text,), (image,) = lines(tmp_path / "out", "train"), lines(tmp_path / "out", "train-images")
    assert text["messages"] == [
        {"role": "user", "content": "<image><image>What differs?"},
        {"role": "assistant", "content": row.chosen},
    ]
    assert text["rejected_response"] == row.rejected
    assert set(text) == {"messages", "images", "rejected_response"}
    assert set(image) == {"messages", "images", "rejected_images"}
    assert (image["messages"], image["images"]) == (text["messages"], text["images"])
    for name, given in (("images", row.images), ("rejected_images", row.rejected_images)):
        assert [(tmp_path / "out" / path).read_bytes() for path in image[name]] == list(given)
    assert {name: rows for name, (rows, _) in tally.sizes.items()} == {
        "train": 1,
        "train-images": 1,
    }
    files = [
        path
        for path in (tmp_path / "out").rglob("*")
        if path.is_file() and path.parent.name != "out"
    ]
    assert sum(size for _, size in tally.sizes.values()) == sum(
        path.stat().st_size for path in files
    )


def test_the_image_that_was_left_as_it_is_is_the_same_file(tmp_path: Path) -> None:
    row = preference(1, rejected_images=2)
    row = replace(
        row, rejected_images=(row.images[0], row.rejected_images[1]), rejected="", rejected_maker=""
    )
    export_some(tmp_path / "out", [row], form="ms-swift")
    (line,) = lines(tmp_path / "out", "train-images")
    assert line["rejected_images"][0] == line["images"][0]
    assert line["rejected_images"][1] != line["images"][1]
    assert not (tmp_path / "out/data/train.jsonl").exists()


def test_rows_that_reject_nothing_or_hold_its_marks_are_counted(tmp_path: Path) -> None:
    good = preference(1)
    rows = [good, replace(good, rejected=""), replace(good, chosen="The <bbox> is red.")]
    tally = export_some(tmp_path / "out", rows, form="ms-swift")
    assert tally.rows == 1
    assert set(tally.unheld) == {
        "nothing rejected",
        "an answer has the mark of an image, a video or a sound in its words",
    }
