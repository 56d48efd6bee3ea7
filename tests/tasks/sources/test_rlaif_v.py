"""A row becomes one image and one preference about it; the build ends with preferences, a report and an export."""

import json
import re

import datasets
import pytest

import pairwright as pw
from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import ImageRow, PreferenceRow, Turn, make_key
from pairwright.tasks.sources.rlaif_v import answering_model
from pairwright.tasks.store.files import Folder
from tests.fixtures.pictures import picture
from tests.fixtures.tables import IMAGE, build, config_of, read_all, reasons_of, struct, write_table

KIND = "rlaif-v"
NAME = "RLAIF-V-Dataset_000.parquet"
DATA = [picture(seed, kind="JPEG") for seed in range(3)]
MODEL = json.dumps({"model": "llava-v1.5-7b", "type": "detailed_description"})


@pytest.fixture
def folder(tmp_path):
    columns = {
        "ds_name": ["RLAIF-V"] * 6,
        "image": [struct(DATA[n], f"{n}.jpg") for n in (0, 0, 1, 2, 2)] + [struct(b"bad")],
        "question": ["What is it?", "Where?", "What is it?", "", "Why?", "What?"],
        "chosen": ["A dog.", "On a lawn.", "A cat.", "x", "same", "x"],
        "rejected": ["A horse.", "In a pool.", "Two cats.", "y", "same", "y"],
        "origin_dataset": ["COCO"] * 6,
        "origin_split": [MODEL, MODEL, "no json", MODEL, MODEL, MODEL],
        "idx": list("012345"),
        "image_path": ["a.jpg"] * 6,
    }
    write_table(tmp_path / "set" / NAME, columns, types={"image": IMAGE})
    return tmp_path / "set"


def test_rows_become_preferences_about_one_image(folder):
    items, found = read_all(config_of(KIND, folder))
    image, preference = found[f"{NAME}#0"]
    assert isinstance(image, ImageRow)
    assert preference == PreferenceRow(
        key=make_key("preference", image.key, "What is it?", "A dog.", "A horse.", "llava-v1.5-7b"),
        source_key=items[0].key,
        subject=image.key,
        prompt=(Turn(role="user", text="What is it?"),),
        images=(DATA[0],),
        image_keys=(make_key(DATA[0]),),
        chosen="A dog.",
        chosen_model="llava-v1.5-7b",
        rejected="A horse.",
        rejected_maker="given",
        rejected_note="RLAIF-V COCO 0",
        negatives=(),
        rejected_images=(),
        removal_scores=(),
        component=make_key(DATA[0]),
        split="train",
        sources=("rlaif-v",),
        licences=("CC-BY-NC-4.0",),
    )
    other = found[f"{NAME}#1"][1]
    assert (other.component, other.key == preference.key) == (preference.component, False)
    assert found[f"{NAME}#2"][1].chosen_model == "RLAIF-V"
    assert reasons_of(found) == {
        f"{NAME}#3": "no question or answer",
        f"{NAME}#4": "chosen is rejected",
        f"{NAME}#5": "not an image",
    }


@pytest.mark.parametrize("text", [None, 7, "", "[]", '{"model": 3}', "[" * 9000, '{"model": " "}', " " * 10_001])
def test_the_model_is_the_data_set_where_none_is_named(text):
    assert answering_model(text) == "RLAIF-V"


def test_another_table_is_refused(tmp_path):
    write_table(tmp_path / "a.parquet", {"image": [DATA[0]], "question": ["a"]})
    with pytest.raises(SourceError, match="chosen, rejected; "):
        read_all(config_of(KIND, tmp_path))


def test_a_build_brings_preferences_and_nothing_is_mined(folder, tmp_path, monkeypatch):
    counts, _ = build(f"{KIND}:{folder}", tmp_path / "out", until="")
    found = {name: (count.of, count.rows) for name, count in counts.items() if count.of}
    assert found == {"images": (6, 2), "given_preferences": (6, 3), "preferences": (3, 3)}
    assert build(f"{KIND}:{folder}", tmp_path / "out", until="")[1] == 0

    dataset = Folder(str(tmp_path / "out"))
    pw.open(dataset.url).report(pairs=4)
    page = (tmp_path / "out/report/index.html").read_text()
    assert "No pairs yet" not in page
    assert "Each is about one image." in page
    words = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert "What is it?Chosen RLAIF-V A cat." in words.replace("? Chosen", "?Chosen")
    assert "Two cats." in words
    assert len(re.findall(r'<article class="card" aria-label="Preference', page)) == 2  # one of each image

    tally = pw.open(dataset.url).export("hf", str(tmp_path / "hf"))
    assert (tally.rows, tally.licences, tally.makers) == (3, {"CC-BY-NC-4.0": 2}, {"given": 3})
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    loaded = datasets.load_dataset(str(tmp_path / "hf"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    by_text = {row["chosen"][0]["content"][0]["text"]: row for row in loaded["train"]}
    assert set(by_text) == {"A dog.", "On a lawn.", "A cat."}
    row = by_text["A dog."]
    assert len(row["images"]) == 1
    assert [part["type"] for part in row["prompt"][0]["content"]] == ["image", "text"]
    card = (tmp_path / "hf/README.md").read_text()
    assert "about one image" in card
    assert "embedded" not in card
    assert "license: cc-by-nc-4.0" in card
