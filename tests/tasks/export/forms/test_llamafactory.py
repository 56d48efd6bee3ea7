"""LLaMA-Factory's rules for a multimodal preference, after its data/README.md and converters."""

import json
from dataclasses import replace

from pairwright.schemas.rows import Turn
from tests.fixtures.exports import export_some, files_of, lines_of, preference


def test_an_entry_names_the_file_and_its_columns(tmp_path):
    rows = [preference(1), replace(preference(2), split="validation")]
    export_some(tmp_path, rows, form="llamafactory")
    info = json.loads((tmp_path / "dataset_info.json").read_text())
    assert list(info) == ["by-hand_train", "by-hand_validation"]
    entry = info["by-hand_train"]
    assert entry["file_name"] == "data/train.jsonl"
    assert (entry["formatting"], entry["ranking"]) == ("sharegpt", True)
    (line,) = lines_of(tmp_path, "train")
    assert set(entry["columns"].values()) == set(line)
    assert "dataset: by-hand_train" in (tmp_path / "README.md").read_text()


def test_a_line_is_a_preference_with_a_mark_per_image(tmp_path):
    prompt = (
        Turn(role="system", text="Be short."),
        Turn(role="user", text="Hello"),
        Turn(role="assistant", text="Hi"),
        Turn(role="user", text="What differs? Größe"),
    )
    row = replace(preference(3, rejected_images=2), prompt=prompt)
    export_some(tmp_path, [row], form="llamafactory")
    (line,) = lines_of(tmp_path)
    assert line["conversations"] == [
        {"from": "system", "value": "Be short."},
        {"from": "human", "value": "<image><image>Hello"},
        {"from": "gpt", "value": "Hi"},
        {"from": "human", "value": "What differs? Größe"},
    ]
    assert line["chosen"] == {"from": "gpt", "value": row.chosen}
    assert line["rejected"] == {"from": "gpt", "value": row.rejected}
    assert tuple((tmp_path / name).read_bytes() for name in line["images"]) == row.images


def test_marks_of_the_prompt_stay_where_they_are(tmp_path):
    text = "<image>\n<image>\nWhat differs?"
    row = replace(preference(1), prompt=(Turn(role="user", text=text),))
    export_some(tmp_path, [row], form="llamafactory")
    (line,) = lines_of(tmp_path)
    assert line["conversations"] == [{"from": "human", "value": text}]


def test_an_image_is_one_file_however_often_it_is_shown(tmp_path):
    first, second = preference(1), preference(2)
    second = replace(second, images=(first.images[0], second.images[1]))
    hostile = replace(preference(3), image_keys=("ab" * 16, "cd" * 16))
    tally = export_some(tmp_path, [first, second, hostile], form="llamafactory")
    files = {name: len(data) for name, data in files_of(tmp_path).items()}
    images = [name for name in files if name.startswith("images/")]
    assert len(images) == 5
    assert all(name.endswith(".png") for name in images)
    size = sum(files[name] for name in (*images, "data/train.jsonl"))
    assert tally.sizes == {"train": (3, size)}
