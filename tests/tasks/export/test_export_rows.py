import json
import re
import resource
from collections import Counter
from dataclasses import fields, replace

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
from pairwright.tasks.export.write_card import _licence, escape_markdown
from pairwright.tasks.images.plain import PlainImages
from tests.fixtures.exports import export_handmade as export
from tests.fixtures.exports import export_some, files_of, preference, rows_of
from tests.tasks.report.handmade import build_handmade, make_whole

SPLITS = ("train", "validation", "test")


@pytest.fixture(scope="module")
def made():
    return make_whole()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, made):
    """Return the folder of a whole export, which no test may change, and its tally."""
    folder = tmp_path_factory.mktemp("whole")
    tally = export(folder, made)
    return folder / "out", tally


@pytest.fixture
def changed(made):
    """Return what makes a dataset with other preferences."""

    def change(*rows):
        other = make_whole()
        other.tables["preferences"] = list(rows)
        return other

    return change


def test_datasets_loads_it_with_images(whole, made, offline) -> None:
    folder, tally = whole
    loaded = datasets.load_dataset(str(folder), cache_dir=offline)
    sizes = {split: rows for split, (rows, _) in tally.sizes.items()}
    assert {split: len(rows) for split, rows in loaded.items()} == sizes
    assert set(loaded) == set(SPLITS)
    preferences = {row.key: row for row in made.of("preferences")}
    image = {"type": "image", "text": None}
    content = [image, image, {"type": "text", "text": "What differs?"}]
    splits = {}
    for split, rows in loaded.items():
        for row in rows:
            given = preferences.pop(row["key"])
            assert given.split == split
            shown = row["images"] + row["rejected_images"]
            assert all(isinstance(image, Pillow.Image) for image in shown)
            answer = [{"type": "text", "text": given.chosen}]
            assert row["chosen"] == [{"role": "assistant", "content": answer}]
            assert row["rejected"][0]["content"][0]["text"] == given.rejected
            assert row["prompt"] == [{"role": "user", "content": content}]
            assert [one["maker"] for one in row["negatives"]] == ["swapped", "retrieved"]
            assert row["licences"] == ["CC0-1.0", "CC0-1.0"]
            for key in row["image_keys"]:
                assert splits.setdefault(key, split) == split, "an image is in two splits"
    assert not preferences


def bytes_of(images):
    return tuple(image["bytes"] for image in images)


def plain(images):
    return tuple(map(PlainImages().make_plain, images))


def test_plain_images_keep_the_bytes_of_the_source(whole, made) -> None:
    preferences = {row.key: row for row in made.of("preferences")}
    for row in rows_of(whole[0]):
        given = preferences[row["key"]]
        assert bytes_of(row["images"]) == plain(given.images)
        assert bytes_of(row["rejected_images"]) == plain(given.rejected_images)
        assert [(one["clip"], one["why"]) for one in row["removal_scores"]] == [
            (float(np.float32(one.clip)), one.why) for one in given.removal_scores
        ]
        assert row["images"][0]["path"].rpartition(".")[2] in ("png", "jpg", "webp", "tiff")
        names = [image["path"].partition(".")[0] for image in row["rejected_images"]]
        for score in (score for score in row["removal_scores"] if score["chosen"]):
            assert names[score["side"]] == score["removal"]
            assert names[1 - score["side"]] == row["image_keys"][1 - score["side"]]


def test_a_crop_is_named_after_its_image(tmp_path, made, changed) -> None:
    crop = next(row for row in made.of("preferences") if row.rejected_image_maker == "crop")
    images = (crop.images[0], b"\x89PNG cropped")
    export(tmp_path, changed(replace(crop, rejected_images=images)))
    (row,) = rows_of(tmp_path / "out")
    kept, cropped = (image["path"] for image in row["rejected_images"])
    assert (kept, cropped) == (row["images"][0]["path"], f"{row['image_keys'][1]}-crop.png")
    assert row["rejected_image_maker"] == "crop"


def test_every_column_is_in_it(tmp_path) -> None:
    texts = {"kind": "list", "description": "One.", "claims": "[1]", "rejected_claims": "[2]"}
    export_some(tmp_path, [replace(preference(1), **texts)], form="hf")
    (row,) = rows_of(tmp_path)
    assert {name: row[name] for name in texts} == texts
    # "subject" is called "pair"; the split is the file's; "facts" is for the next build.
    columns = {field.name for field in fields(PreferenceRow)}
    assert columns - row.keys() == {"source_key", "subject", "split", "facts"}


def test_columns_have_the_types_that_datasets_gives_them() -> None:
    features = datasets.Features.from_dict(FEATURES)
    assert features.arrow_schema.equals(SCHEMA.remove_metadata()), "physical types"
    metadata = features.arrow_schema.metadata[b"huggingface"]
    assert json.loads(SCHEMA.metadata[b"huggingface"]) == json.loads(metadata)
    assert card_features() == features._to_yaml_list()


def test_files_are_cut_by_size_and_groups_by_rows(tmp_path, made, monkeypatch) -> None:
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 3)
    tally = export(tmp_path, made, bytes_per_file=30_000)
    paths = sorted((tmp_path / "out/data").glob("train*"))
    count = len(paths)
    assert count > 1
    names = [f"train-{number:05d}-of-{count:05d}.parquet" for number in range(count)]
    assert [path.name for path in paths] == names
    files = [pq.ParquetFile(path).metadata for path in paths]
    assert sum(file.num_rows for file in files) == tally.sizes["train"][0]
    groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
    assert max(group.num_rows for group in groups) == 3
    for group in groups:
        columns = [group.column(number) for number in range(group.num_columns)]
        packing = {column.path_in_schema: column.compression for column in columns}
        assert packing["images.list.element.bytes"] == "UNCOMPRESSED"
        assert packing["chosen.list.element.content.list.element.text"] == "ZSTD"


def test_the_card_begins_with_what_the_hub_reads(whole, made) -> None:
    folder, tally = whole
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(front)
    assert (front["license"], front["pretty_name"]) == ("cc0-1.0", "hand | made")
    files = [{"split": split, "path": f"data/{split}-*.parquet"} for split in SPLITS]
    assert front["configs"][0]["data_files"] == files
    counts = {split["name"]: split["num_examples"] for split in front["dataset_info"]["splits"]}
    assert counts == {split: rows for split, (rows, _) in tally.sizes.items()}
    assert sum(counts.values()) == len(made.of("preferences"))


def test_the_card_says_what_is_there(whole, made) -> None:
    folder, tally = whole
    body = (folder / "README.md").read_text().split("---\n", 2)[2]
    images = {key for row in made.of("preferences") for key in row.image_keys}
    assert len(images) < 2 * tally.rows, "an image in two pairs is one image"
    for text in (
        "# hand \\| made: how similar images differ",
        "@misc{",
        "title = {hand | made: how similar images differ},",
        f"| images | {len(made.of('images'))} |",
        f"{tally.rows} of {tally.rows} rows have a rejected text (edited: {tally.rows})",
        "rendered scenes",
        "viewpoint and of the light are distractors by design",
        f"Licences of the {len(images)} images: CC0-1.0 ({len(images)}).",
    ):
        assert text in body
    assert "<details>" in body.partition("| stage |")[0], "the stages' table is folded"
    assert "There is no" not in body


def test_the_card_shows_a_row_with_its_images(tmp_path, made, changed) -> None:
    first = made.of("preferences")[0]
    export(tmp_path, changed(first))
    body = (tmp_path / "out/README.md").read_text()
    shown = re.findall(r"!\[\w+\]\((assets/[\w.]+)\)", body)
    files = files_of(tmp_path / "out")
    assert [files[name] for name in shown] == [*first.images, *first.rejected_images]
    assert f"* **chosen** (by hand): {escape_markdown(first.chosen)}\n" in body
    assert f"): {escape_markdown(first.rejected)}\n" in body
    assert "<script>" not in body


def test_empty_splits_have_no_file_and_no_rows_fail(tmp_path, made, changed, offline) -> None:
    export(tmp_path, changed(*(row for row in made.of("preferences") if row.split == "train")))
    assert "no validation" in (tmp_path / "out/README.md").read_text()
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)
    assert set(loaded) == {"train"}
    with pytest.raises(ConfigError, match="no rows to export"):
        export(tmp_path / "none", changed())
    assert not (tmp_path / "none/out").exists()


def test_rows_that_are_not_selected_are_counted(tmp_path, made, changed) -> None:
    first, *rows = made.of("preferences")
    other = changed(replace(first, licences=("MIT", "")), *rows)
    tally = export(tmp_path, other, selection=Selection(licences=("CC0-1.0",)))
    assert (tally.rows, tally.left_out) == (len(rows), 1)
    assert "1 further row " in (tmp_path / "out/README.md").read_text()
    assert first.key not in {row["key"] for row in rows_of(tmp_path / "out")}


def test_rows_without_rejected_text_have_an_empty_list(tmp_path, made, changed, offline) -> None:
    first, *rows = made.of("preferences")
    plain = replace(first, rejected="", rejected_maker="", rejected_images=())
    export(tmp_path, changed(plain, *rows))
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=offline)
    row = next(row for row in loaded if row["key"] == first.key)
    assert (row["rejected"], row["rejected_images"]) == ([], [])
    assert len(loaded.filter(lambda row: row["rejected"])) == len(loaded) - 1


@pytest.mark.parametrize(
    ("licences", "name"),
    [
        ({"": 2, "CC0-1.0": 2}, "unknown"),
        ({"MIT": 1, "CC0-1.0": 2}, "other"),
        ({"My-Own": 1}, "other"),
        ({"CC-BY-4.0": 1}, "cc-by-4.0"),
    ],
)
def test_licences_not_stated_or_mixed(licences, name) -> None:
    assert _licence(Tally(licences=Counter(licences)))["license"] == name


def test_an_earlier_export_is_replaced_and_gives_the_same_bytes(tmp_path, made) -> None:
    export(tmp_path, made)
    before = files_of(tmp_path / "out")
    (tmp_path / "out/data/train-old.parquet").write_bytes(b"old")
    export(tmp_path, made)
    assert files_of(tmp_path / "out") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "out"]
    (tmp_path / "out/.git").mkdir()
    with pytest.raises(ConfigError, match=r"\.git"):
        check_target(tmp_path / "out")


@pytest.mark.parametrize("held", ["notes.txt", "README.md", "data"])
def test_another_folder_is_not_overwritten(tmp_path, made, held) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / held).write_text("mine")
    with pytest.raises(ConfigError, match=f"out: .*{held}.*--to"):
        export(tmp_path, made)
    assert files_of(tmp_path / "out") == {held: b"mine"}


def test_an_export_that_fails_leaves_the_earlier_one(tmp_path, made, monkeypatch) -> None:
    export(tmp_path, made)
    before = files_of(tmp_path / "out")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    for target in ("out", "fresh"):
        with pytest.raises(StoreError, match="No space left"):
            export(tmp_path, made, target=target)
    assert files_of(tmp_path / "out") == before
    assert MARKER in before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "out"]


@pytest.mark.parametrize(
    ("form", "limit"), [("hf", 200_000), ("hf", 100), ("llamafactory", 100), ("webdataset", 100)]
)
def test_the_first_fault_of_a_disk_is_what_is_said(tmp_path, form, limit) -> None:
    noise = np.random.default_rng(0)
    rows = [
        replace(preference(number), images=(noise.bytes(2000), noise.bytes(2000)))
        for number in range(120)
    ]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StoreError, match=r"out: .*File too large"):
            export_some(tmp_path / "out", rows, form=form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def read_conversations(root, until):
    with build_handmade(root, make_whole(), until=until) as (build, _):
        stages = {planned.stage.name: planned for planned in build.planned}
        return {row.key: row for rows in stream_table(build, stages, "comparisons") for row in rows}


def test_a_conversation_rejects_nothing_and_has_its_pairs_images(tmp_path, made) -> None:
    conversations = read_conversations(tmp_path, "preferences")
    pairs = {pair.key: pair for pair in made.of("pairs")}
    images = {image.key: image for image in made.of("images")}
    splits = {split.subject: split.split for split in made.of("splits")}
    assert conversations.keys() == {row.key for row in made.of("comparisons")}
    for row in made.of("comparisons"):
        given, pair = conversations[row.key], pairs[row.subject]
        first, second = images[pair.first], images[pair.second]
        assert (*given.prompt, given.chosen) == (*row.conversation[:-1], row.conversation[-1].text)
        assert given.images == (first.image, second.image)
        assert given.licences == (first.licence, second.licence)
        assert (given.rejected, given.rejected_images, given.split) == ("", (), splits[row.subject])


def test_without_splits_all_are_for_training(tmp_path, made) -> None:
    conversations = read_conversations(tmp_path, "comparisons")
    assert len(conversations) == len(made.of("comparisons"))
    assert {row.split for row in conversations.values()} == {"train"}
