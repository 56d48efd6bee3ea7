import json
import logging
import re
import resource
from dataclasses import fields, replace
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image as Pillow

from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export import parquet
from pairwright.tasks.export.export_rows import stream_table
from pairwright.tasks.export.formats import MARKER, check_target
from pairwright.tasks.export.forms.hf import FEATURES, SCHEMA, card_features
from pairwright.tasks.export.tally_rows import Selection, Tally
from pairwright.tasks.export.write_card import escape_markdown
from tests.fixtures.exports import export_handmade as export
from tests.fixtures.exports import export_some, preference
from tests.tasks.report.handmade import build_handmade, make_whole


@pytest.fixture(scope="module")
def made():
    return make_whole()


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Keep every cache of `datasets` in the test's folder, and the network out."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    logging.getLogger("filelock").setLevel(logging.WARNING)
    return tmp_path / "cache"


def test_datasets_loads_it_with_images(tmp_path, made, offline):
    tally = export(tmp_path, made)
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(offline))
    assert {split: len(rows) for split, rows in loaded.items()} == {
        name: n for name, (n, _) in tally.sizes.items()
    }
    assert set(loaded) == {"train", "validation", "test"}
    by_key = {row.key: row for row in made.of("preferences")}
    message = {
        "role": "user",
        "content": [
            {"type": "image", "text": None},
            {"type": "image", "text": None},
            {"type": "text", "text": "What differs?"},
        ],
    }
    seen = {}
    for split, rows in loaded.items():
        for row in rows:
            given = by_key.pop(row["key"])
            assert given.split == split
            assert all(
                isinstance(shown, Pillow.Image) for shown in row["images"] + row["rejected_images"]
            )
            assert row["chosen"] == [
                {"role": "assistant", "content": [{"type": "text", "text": given.chosen}]}
            ]
            assert row["rejected"][0]["content"][0]["text"] == given.rejected
            assert row["prompt"] == [message]
            assert [n["maker"] for n in row["negatives"]] == ["swapped", "retrieved"]
            assert row["licences"] == ["CC0-1.0", "CC0-1.0"]
            for key in row["image_keys"]:
                assert seen.setdefault(key, split) == split, "an image is in two splits"
    assert not by_key


def rows_of(folder: Path) -> list[dict]:
    return [
        row
        for path in sorted((folder / "data").glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def test_bytes_are_those_of_the_source(tmp_path, made):
    export(tmp_path, made)
    given = {row.key: row for row in made.of("preferences")}
    for row in rows_of(tmp_path / "out"):
        assert tuple(image["bytes"] for image in row["images"]) == given[row["key"]].images
        assert (
            tuple(image["bytes"] for image in row["rejected_images"])
            == given[row["key"]].rejected_images
        )
        assert [(one["clip"], one["why"]) for one in row["removal_scores"]] == [
            (float(np.float32(one.clip)), one.why) for one in given[row["key"]].removal_scores
        ]
        assert row["images"][0]["path"].rpartition(".")[2] in ("png", "jpg", "webp", "tiff")
        for chosen in (score for score in row["removal_scores"] if score["chosen"]):
            names = [image["path"].partition(".")[0] for image in row["rejected_images"]]
            assert names[chosen["side"]] == chosen["removal"]
            assert names[1 - chosen["side"]] == row["image_keys"][1 - chosen["side"]]


def test_a_crop_is_named_after_its_image(tmp_path, made):
    crop = next(row for row in made.of("preferences") if row.rejected_image_maker == "crop")
    chosen = make_whole()
    chosen.tables["preferences"] = [
        replace(crop, rejected_images=(crop.images[0], b"\x89PNG cropped"))
    ]
    export(tmp_path, chosen)
    (row,) = rows_of(tmp_path / "out")
    kept, cropped = (image["path"] for image in row["rejected_images"])
    assert (kept, cropped) == (row["images"][0]["path"], f"{row['image_keys'][1]}-crop.png")
    assert row["rejected_image_maker"] == "crop"


def test_every_column_is_in_it_as_datasets_has_it(tmp_path):
    told = {"kind": "list", "description": "One.", "claims": "[1]", "rejected_claims": "[2]"}
    export_some(tmp_path / "out", [replace(preference(1), **told)], form="hf")
    (row,) = rows_of(tmp_path / "out")
    assert {name: row[name] for name in told} == told
    # "subject" is called "pair"; the split is the file's.
    assert {field.name for field in fields(PreferenceRow)} - row.keys() == {
        "source_key",
        "subject",
        "split",
    }
    features = datasets.Features.from_dict(FEATURES)
    assert features.arrow_schema.equals(SCHEMA.remove_metadata()), "physical types"
    assert json.loads(SCHEMA.metadata[b"huggingface"]) == json.loads(
        features.arrow_schema.metadata[b"huggingface"]
    )
    assert card_features() == features._to_yaml_list()


def test_files_are_cut_by_size_and_groups_by_rows(tmp_path, made, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 3)
    tally = export(tmp_path, made, bytes_per_file=30_000)
    names = sorted(path.name for path in (tmp_path / "out/data").iterdir())
    train = [name for name in names if name.startswith("train")]
    assert len(train) > 1
    assert train == [f"train-{n:05d}-of-{len(train):05d}.parquet" for n in range(len(train))]
    files = [pq.ParquetFile(tmp_path / "out/data" / name) for name in train]
    assert sum(file.metadata.num_rows for file in files) == tally.sizes["train"][0]
    groups = [
        file.metadata.row_group(g) for file in files for g in range(file.metadata.num_row_groups)
    ]
    assert max(group.num_rows for group in groups) == 3
    for group in groups:
        columns = {
            group.column(c).path_in_schema: group.column(c).compression
            for c in range(group.num_columns)
        }
        assert columns["images.list.element.bytes"] == "UNCOMPRESSED"
        assert columns["chosen.list.element.content.list.element.text"] == "ZSTD"


def test_card_says_what_is_there(tmp_path, made):
    tally = export(tmp_path, made)
    text = (tmp_path / "out/README.md").read_text()
    _, front, body = text.split("---\n", 2)
    front = yaml.safe_load(front)
    assert front["license"] == "cc0-1.0"
    assert front["pretty_name"] == "hand | made"
    assert front["configs"][0]["data_files"] == [
        {"split": split, "path": f"data/{split}-*.parquet"}
        for split in ("train", "validation", "test")
    ]
    counted = {split["name"]: split["num_examples"] for split in front["dataset_info"]["splits"]}
    assert counted == {split: rows for split, (rows, _) in tally.sizes.items()}
    assert sum(counted.values()) == len(made.of("preferences"))
    assert "# hand \\| made: how similar images differ" in body
    assert "@misc{" in body
    assert "title = {hand | made: how similar images differ}," in body
    assert "<details>" in body.partition("| stage |")[0], "the stages' table is folded"
    assert f"| images | {len(made.of('images'))} |" in body
    assert f"{tally.rows} of {tally.rows} rows have a rejected text (edited: {tally.rows})" in body
    assert "rendered scenes" in body
    assert "viewpoint and of the light are distractors by design" in body
    # An image in two pairs is one image.
    images = {key for row in made.of("preferences") for key in row.image_keys}
    assert len(images) < 2 * tally.rows
    assert f"Licences of the {len(images)} images: CC0-1.0 ({len(images)})." in body
    assert "There is no" not in body


def test_empty_splits_have_no_file_and_the_card_says_so(tmp_path, made, offline):
    made = make_whole()
    made.tables["preferences"] = [row for row in made.of("preferences") if row.split == "train"]
    export(tmp_path, made)
    assert "no validation" in (tmp_path / "out/README.md").read_text()
    assert set(datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(offline))) == {"train"}


def test_rows_that_are_not_selected_are_counted(tmp_path, made):
    rows = made.of("preferences")
    one = rows[0]
    made = make_whole()
    made.tables["preferences"] = [replace(one, licences=("MIT", "")), *rows[1:]]
    tally = export(tmp_path, made, selection=Selection(licences=("CC0-1.0",)))
    assert (tally.rows, tally.left_out) == (len(rows) - 1, 1)
    assert "1 further row " in (tmp_path / "out/README.md").read_text()
    assert one.key not in {row["key"] for row in rows_of(tmp_path / "out")}


def test_rows_without_rejected_text_have_an_empty_list(tmp_path, offline):
    made = make_whole()
    rows = made.of("preferences")
    made.tables["preferences"] = [
        replace(rows[0], rejected="", rejected_maker="", rejected_images=()),
        *rows[1:],
    ]
    export(tmp_path, made)
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(offline))
    row = next(row for row in loaded if row["key"] == rows[0].key)
    assert row["rejected"] == []
    assert row["rejected_images"] == []
    assert len(loaded.filter(lambda row: row["rejected"])) == len(loaded) - 1


def test_licences_not_stated_or_mixed(tmp_path):
    from collections import Counter

    from pairwright.tasks.export.write_card import _licence

    assert _licence(Tally(licences=Counter({"": 2, "CC0-1.0": 2}))) == {"license": "unknown"}
    assert _licence(Tally(licences=Counter({"MIT": 1, "CC0-1.0": 2})))["license"] == "other"
    assert _licence(Tally(licences=Counter({"My-Own": 1})))["license"] == "other"
    assert _licence(Tally(licences=Counter({"CC-BY-4.0": 1}))) == {"license": "cc-by-4.0"}


def test_an_earlier_export_is_replaced_and_gives_the_same_bytes(tmp_path, made):
    export(tmp_path, made)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    (tmp_path / "out/data/train-old.parquet").write_bytes(b"old")
    export(tmp_path, made)
    assert {
        path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()
    } == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "out"]
    export(tmp_path, made)
    (tmp_path / "out/.git").mkdir()
    with pytest.raises(ConfigError, match=r"\.git"):
        check_target(tmp_path / "out")


@pytest.mark.parametrize("held", ["notes.txt", "README.md", "data"])
def test_another_folder_is_not_overwritten(tmp_path, made, held):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / held).write_text("mine")
    with pytest.raises(ConfigError, match=f"out: .*{held}.*--to"):
        export(tmp_path, made)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [held]


def test_an_export_that_fails_leaves_the_earlier_one(tmp_path, made, monkeypatch):
    export(tmp_path, made)
    before = (tmp_path / "out/README.md").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StoreError, match="No space left"):
        export(tmp_path, made)
    assert (tmp_path / "out/README.md").read_bytes() == before
    assert (tmp_path / "out" / MARKER).exists()
    with pytest.raises(StoreError, match="No space left"):
        export(tmp_path, made, target="fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "out"]


@pytest.mark.parametrize(
    ("form", "limit"), [("hf", 200_000), ("hf", 100), ("llamafactory", 100), ("webdataset", 100)]
)
def test_the_first_fault_of_a_disk_is_what_is_said(tmp_path, form, limit):
    noise = np.random.default_rng(0)
    rows = [
        replace(preference(n), images=(noise.bytes(2000), noise.bytes(2000))) for n in range(120)
    ]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StoreError, match=r"out: .*File too large"):
            export_some(tmp_path / "out", rows, form=form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_no_preferences_is_a_clear_error(tmp_path):
    made = make_whole()
    made.tables["preferences"] = []
    with pytest.raises(ConfigError, match="no rows to export"):
        export(tmp_path, made)
    assert not (tmp_path / "out").exists()


def test_the_card_shows_a_row_with_its_images(tmp_path):
    made = make_whole()
    first = next(row for row in made.of("preferences"))
    made.tables["preferences"] = [first]
    export(tmp_path, made)
    body = (tmp_path / "out/README.md").read_text()
    shown = re.findall(r"!\[\w+\]\((assets/[\w.]+)\)", body)
    assert [(tmp_path / "out" / name).read_bytes() for name in shown] == [
        *first.images,
        *first.rejected_images,
    ]
    assert f"* **chosen** (by hand): {escape_markdown(first.chosen)}\n" in body
    assert f"): {escape_markdown(first.rejected)}\n" in body
    assert "<script>" not in body


def read_conversations(root: Path, until: str) -> dict:
    with build_handmade(root, make_whole(), until=until) as (build, _):
        stages = {planned.stage.name: planned for planned in build.planned}
        return {row.key: row for rows in stream_table(build, stages, "comparisons") for row in rows}


def test_a_conversation_rejects_nothing_and_has_its_pairs_images(tmp_path: Path) -> None:
    made = make_whole()
    found = read_conversations(tmp_path, "preferences")
    pairs = {pair.key: pair for pair in made.of("pairs")}
    images = {image.key: image for image in made.of("images")}
    splits = {split.subject: split.split for split in made.of("splits")}
    assert found.keys() == {row.key for row in made.of("comparisons")}
    for row in made.of("comparisons"):
        given, pair = found[row.key], pairs[row.subject]
        assert (*given.prompt, given.chosen) == (*row.conversation[:-1], row.conversation[-1].text)
        assert given.images == (images[pair.first].image, images[pair.second].image)
        assert given.licences == (images[pair.first].licence, images[pair.second].licence)
        assert (given.rejected, given.rejected_images, given.split) == ("", (), splits[row.subject])


def test_without_splits_all_are_for_training(tmp_path: Path) -> None:
    found = read_conversations(tmp_path, "comparisons")
    assert len(found) == len(make_whole().of("comparisons"))
    assert {row.split for row in found.values()} == {"train"}
