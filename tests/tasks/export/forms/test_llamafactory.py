"""LLaMA-Factory's rules for a multimodal preference, after its data/README.md and converters, on
what is exported."""

import json
from dataclasses import replace
from pathlib import Path

from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, preference


def read(folder: Path, entry: str) -> tuple[dict, list[dict]]:
    info = json.loads((folder / "dataset_info.json").read_text())[entry]
    return info, [
        json.loads(line) for line in (folder / info["file_name"]).read_text().splitlines()
    ]


def test_an_entry_names_the_file_and_its_columns(tmp_path: Path) -> None:
    rows = [preference(1), replace(preference(2), split="validation")]
    export_some(tmp_path / "out", rows, form="llamafactory")
    info = json.loads((tmp_path / "out/dataset_info.json").read_text())
    assert list(info) == ["by-hand_train", "by-hand_validation"]
    entry, (line,) = read(tmp_path / "out", "by-hand_train")
    assert (entry["formatting"], entry["ranking"]) == ("sharegpt", True)
    assert set(entry["columns"].values()) == set(line)
    assert "dataset: by-hand_train" in (tmp_path / "out/README.md").read_text()


def test_a_line_is_a_preference_with_a_mark_per_image(tmp_path: Path) -> None:
    row = replace(preference(3, rejected_images=2), prompt=(
        Turn(role="system", text="Be short."),
        Turn(role="user", text="Hello"),
        Turn(role="assistant", text="Hi"),
        Turn(role="user", text="What differs? Größe"),
    ))  # fmt: skip
    export_some(tmp_path / "out", [row], form="llamafactory")
    _, (line,) = read(tmp_path / "out", "by-hand_train")
    assert line["conversations"] == [
        {"from": "system", "value": "Be short."},
        {"from": "human", "value": "<image><image>Hello"},
        {"from": "gpt", "value": "Hi"},
        {"from": "human", "value": "What differs? Größe"},
    ]
    assert line["chosen"] == {"from": "gpt", "value": row.chosen}
    assert line["rejected"] == {"from": "gpt", "value": row.rejected}
    assert [(tmp_path / "out" / name).read_bytes() for name in line["images"]] == list(row.images)


def test_an_image_is_one_file_however_often_it_is_shown(tmp_path: Path) -> None:
    first, second = preference(1), preference(2)
    second = replace(second, images=(first.images[0], second.images[1]))
    hostile = replace(preference(3), image_keys=("ab" * 16, "cd" * 16))
    tally = export_some(tmp_path / "out", [first, second, hostile], form="llamafactory")
    files = [path for path in (tmp_path / "out/images").rglob("*") if path.is_file()]
    assert len(files) == 5
    assert all(path.suffix == ".png" for path in files)
    size = sum(path.stat().st_size for path in [*files, tmp_path / "out/data/train.jsonl"])
    assert tally.sizes == {"train": (3, size)}


def test_marks_in_texts_would_show_other_things(tmp_path: Path) -> None:
    good = preference(1)
    rows = [
        good,
        replace(good, prompt=(Turn(role="user", text="<image>\n<image>\nWhat differs?"),)),
        replace(good, prompt=(Turn(role="user", text="What differs in the <video>?"),)),
        replace(good, rejected="The <audio> is loud."),
    ]
    tally = export_some(tmp_path / "out", rows, form="llamafactory")
    assert (tally.rows, tally.unheld.total()) == (2, 2)
    _, (_, placed) = read(tmp_path / "out", "by-hand_train")
    assert placed["conversations"][0]["value"] == "<image>\n<image>\nWhat differs?"
