"""LLaVA's training data, hostile and broken records among it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.rows import Dropped, PreferenceRow, make_key
from pairwright.tasks.sources.read_llava import read_llava
from tests.fixtures.pictures import picture

IMAGE = picture(1, size=(48, 40))
SAID = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A dog."}]
MORE = [*SAID, {"from": "human", "value": "Sure?"}, {"from": "gpt", "value": "Yes."}, SAID[0]]


def write(folder: Path, *records: Any) -> Path:
    (folder / "coco").mkdir(exist_ok=True)
    (folder / "coco/1.png").write_bytes(IMAGE)
    (folder / "coco/broken.png").write_bytes(b"no image")
    (folder / "coco/link.png").symlink_to("/etc/hostname")
    path = folder / "mix.json"
    path.write_text(json.dumps(records))
    return path


def test_records_become_conversations_in_an_order_of_their_seed(tmp_path: Path) -> None:
    records = [{"id": n, "image": "coco/1.png", "conversations": MORE} for n in range(9)]
    path = write(
        tmp_path,
        *records,
        {"conversations": MORE[2:4]},
        {"image": ["coco/1.png"] * 2, "conversations": SAID},
    )
    rows = list(read_llava(path, seed=1))
    assert sorted(row.source_key for row in rows) == sorted(f"mix.json#{n}" for n in range(11))
    assert list(read_llava(path, seed=1)) == rows != list(read_llava(path, seed=2))
    found = {row.key: row for row in rows if isinstance(row, PreferenceRow)}
    one, text, two = (found[f"mix.json#{n}"] for n in (0, 9, 10))
    assert [turn.text for turn in one.prompt] == ["<image>\nWhat is it?", "A dog.", "Sure?"]
    assert (one.chosen, one.images, one.image_keys) == ("Yes.", (IMAGE,), (make_key(IMAGE),))
    assert (text.prompt[0].text, text.chosen, text.images) == ("Sure?", "Yes.", ())
    assert two.images == (IMAGE, IMAGE)


def test_images_may_lie_beside_the_file_s_folder_as_in_an_export(tmp_path: Path) -> None:
    path = write(tmp_path, {"image": "coco/1.png", "conversations": SAID})
    (tmp_path / "data").mkdir()
    (row,) = read_llava(path.rename(tmp_path / "data/train.json"), seed=0)
    assert isinstance(row, PreferenceRow)
    assert row.images == (IMAGE,)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (7, "no record"),
        ({"image": "coco/1.png"}, "damaged conversation"),
        ({"conversations": SAID[:1]}, "no answer"),
        ({"image": "../secret.png", "conversations": SAID}, "path leaves the folder"),
        ({"image": "coco/link.png", "conversations": SAID}, "path leaves the folder"),
        ({"image": "coco/gone.png", "conversations": SAID}, "missing file"),
        ({"image": "coco/broken.png", "conversations": SAID}, "not an image"),
        ({"image": ["coco/1.png"] * 17, "conversations": SAID}, "too many images"),
    ],
)
def test_a_record_that_will_not_do_is_dropped_with_its_reason(
    tmp_path: Path, record: Any, reason: str
) -> None:
    (row,) = read_llava(write(tmp_path, record), seed=0)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == ("mix.json#0", reason)
