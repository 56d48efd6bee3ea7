"""LLaVA's training data, broken records among it; hostile paths are tested with all readers'."""

import pytest

from pairwright.schemas.rows import Dropped, make_key
from pairwright.tasks.sources.read_llava import read_llava
from tests.fixtures.layouts import put
from tests.fixtures.pictures import picture

IMAGE = picture(1, size=(48, 40))
TALK = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A dog."}]
LONG = [*TALK, {"from": "human", "value": "Sure?"}, {"from": "gpt", "value": "Yes."}, TALK[0]]


def write(folder, *records):
    put(folder, "coco/1.png", IMAGE)
    return put(folder, "mix.json", list(records))


def test_records_become_conversations(tmp_path) -> None:
    one = {"id": 0, "image": "coco/1.png", "conversations": LONG}
    two = {"image": ["coco/1.png"] * 2, "conversations": TALK}
    path = write(tmp_path, one, {"conversations": LONG[2:4]}, two)
    rows = {row.key: row for row in read_llava(path, seed=1)}
    first, text, both = (rows[f"mix.json#{number}"] for number in range(3))
    assert [turn.text for turn in first.prompt] == ["<image>\nWhat is it?", "A dog.", "Sure?"]
    assert (first.chosen, first.images, first.image_keys) == ("Yes.", (IMAGE,), (make_key(IMAGE),))
    assert (text.prompt[0].text, text.chosen, text.images) == ("Sure?", "Yes.", ())
    assert both.images == (IMAGE, IMAGE)


def test_records_come_in_an_order_of_their_seed(tmp_path) -> None:
    path = write(tmp_path, *({"id": number, "conversations": TALK} for number in range(11)))
    rows = list(read_llava(path, seed=1))
    assert sorted(row.source_key for row in rows) == sorted(f"mix.json#{n}" for n in range(11))
    assert list(read_llava(path, seed=1)) == rows != list(read_llava(path, seed=2))


def test_images_may_lie_beside_the_file_s_folder_as_in_an_export(tmp_path) -> None:
    path = write(tmp_path, {"image": "coco/1.png", "conversations": TALK})
    (tmp_path / "data").mkdir()
    (row,) = read_llava(path.rename(tmp_path / "data/train.json"), seed=0)
    assert row.images == (IMAGE,)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (7, "no record"),
        ({"image": "coco/1.png"}, "damaged conversation"),
        ({"conversations": TALK[:1]}, "no answer"),
        ({"image": ["coco/1.png"] * 17, "conversations": TALK}, "too many images"),
    ],
)
def test_a_bad_record_is_dropped_with_its_reason(tmp_path, record, reason) -> None:
    (row,) = read_llava(write(tmp_path, record), seed=0)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == ("mix.json#0", reason)


SYSTEM = {"from": "system", "value": "Be brief."}


@pytest.mark.parametrize(
    "record",
    [
        {"conversations": [SYSTEM, *TALK]},
        {"conversations": TALK, "system": "Be brief."},
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "<image>\nWhat is it?"},
                {"role": "assistant", "content": "A dog."},
            ]
        },
    ],
)
def test_a_system_message_comes_first(tmp_path, record) -> None:
    (row,) = read_llava(write(tmp_path, {"image": "coco/1.png", **record}), seed=0)
    assert [(turn.role, turn.text) for turn in row.prompt] == [
        ("system", "Be brief."),
        ("user", "<image>\nWhat is it?"),
    ]
    assert row.chosen == "A dog."


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([TALK[0], {"from": "gpt", "value": "  "}], "empty answer"),
        ([{"from": "human", "value": ""}, TALK[1]], "empty question"),
        ([*TALK, SYSTEM], "damaged conversation"),
        ([{"from": "tool", "value": "7"}, *TALK], "damaged conversation"),
    ],
)
def test_a_refusal_names_the_record(tmp_path, turns, reason) -> None:
    (row,) = read_llava(write(tmp_path, {"id": "vg-17", "conversations": turns}), seed=0)
    assert isinstance(row, Dropped)
    assert row.reason == reason
    assert row.detail.startswith("vg-17")
