"""Exports of real builds, from Python and by the command line."""

import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest

import pairwright as pw
from pairwright.flows.versions import export_dataset
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.schemas.scene import Mask, SceneGraph
from pairwright.tasks.export.formats import FORMATS, MARKER, README
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.command import run
from tests.fixtures.exports import files_of, rows_of


def test_a_rendered_dataset_loads_with_its_images(
    rendered: Path, tmp_path: Path, offline: str
) -> None:
    tally = pw.open(rendered).export("hf", str(tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text()
    assert card.index("## Health") < card.index("## What is in it")
    assert "Rejected images are rendered again without one thing." in card
    assert "Filled holes" not in card
    assert "version 1" in card
    assert f"| preferences | {tally.rows} | {tally.rows} |" in card
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)
    images = {row.key: row.image for row in pw.open(rendered)["images"].rows()}
    rejecting = 0
    for rows in loaded.values():
        for row in rows:
            for shown, key in zip(row["images"], row["image_keys"], strict=True):
                assert np.array_equal(np.asarray(shown), decode_rgb(images[key]))
            if row["rejected_images"]:
                rejecting += 1
                pairs = zip(row["images"], row["rejected_images"], strict=True)
                altered = [bool(np.any(np.asarray(a) != np.asarray(b))) for a, b in pairs]
                assert sorted(altered) == [False, True]
    rejections = [row for row in pw.open(rendered)["rejections"].rows() if row.maker]
    assert rejecting == len(rejections) > 0, "the others' removals passed no check"
    assert sum(map(len, loaded.values())) == tally.rows > 0


def test_licences_are_selected_and_the_card_says_the_rest(rendered, tmp_path, capsys) -> None:
    assert run("export", rendered, "--to", tmp_path / "all", "--licence", "cc0-1.0") == 0
    assert "left out" not in capsys.readouterr().out
    assert "left out" not in (tmp_path / "all/README.md").read_text()
    assert run("export", rendered, "--to", tmp_path / "none", "--licence", "MIT") == 2
    said = capsys.readouterr().err
    assert "licences: CC0-1.0; sources: scenes; splits: " in said
    assert not (tmp_path / "none").exists()


def test_formats_are_explained_and_the_help_names_them(capsys) -> None:
    assert run("formats") == 0
    said = capsys.readouterr().out
    assert run("export", "--help") == 0
    helped = "".join(
        capsys.readouterr().out.replace("│", " ").split()
    )  # lines may break within a name
    for form in FORMATS.values():
        assert f"{form.name}\n    {form.about}\n    {form.cannot}" in said
        assert form.name in helped
    assert run("formats", "hf") == 0
    assert "datasets.load_dataset(" in capsys.readouterr().out
    assert run("formats", "csv") == 2
    assert "--format " in capsys.readouterr().err


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("form", [name for name in FORMATS if name not in ("hf", "llava")])
def test_every_format_is_written_by_the_command_line(
    rendered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    out = tmp_path / "out"
    words = ["export", rendered, "--format", form, "--to", out]
    if FORMATS[form].needs_model:
        words += ["--model", "m"]
    assert run(*words) == 0
    assert FORMATS[form].cannot in capsys.readouterr().out
    before = files_of(out)
    assert FORMATS[form].cannot in before[README].decode()
    expected = {*FORMATS[form].owns, README, MARKER}
    if form == "fiftyone":
        expected -= {"validation"}  # an empty split has no folder
    assert {path.name for path in out.iterdir()} == expected
    assert run(*words, "--verify") == 0
    assert "all rows are valid" in capsys.readouterr().out
    assert files_of(out) == before


def test_mined_pairs_keep_images_and_decisions(mined, tmp_path, capsys, offline) -> None:
    album = shutil.copytree(mined, tmp_path / "album")
    pairs = {row.key: row for row in pw.open(album)["pairs"].rows()}
    images = {row.key: row for row in pw.open(album)["images"].rows()}
    yes, no = sorted(pairs)[:2]
    decided = [
        {"key": key, "verdict": v, "at": "2026-01-01T00:00:00Z"}
        for key, v in ((yes, "accept"), (no, "reject"))
    ]
    (tmp_path / "decided.jsonl").write_text("\n".join(map(json.dumps, decided)))
    assert run("decide", album, tmp_path / "decided.jsonl") == 0
    assert run("export", album, "--table", "pairs", "--to", tmp_path / "out", "--verify") == 0
    assert f"{len(pairs) - 1} pairs (train " in capsys.readouterr().out
    rows = {
        row["key"]: row
        for row in datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)["train"]
    }
    assert rows.keys() == pairs.keys() - {no}
    assert {key: row["decision"] for key, row in rows.items() if row["decision"]} == {yes: "accept"}
    for key, row in rows.items():
        shown = [images[pairs[key].first], images[pairs[key].second]]
        assert row["names"] == [image.name for image in shown]
        assert (row["similarity"], tuple(row["similarities"])) == (
            pairs[key].similarity,
            pairs[key].similarities,
        )
        for seen, image in zip(row["images"], shown, strict=True):
            assert np.array_equal(np.asarray(seen.convert("RGB")), decode_rgb(image.image))
    assert run("export", album, "--table", "pairs", "--to", tmp_path / "yes", "--accepted") == 0
    assert "1 pairs (train 1)" in capsys.readouterr().out
    assert "preference" not in (tmp_path / "out/README.md").read_text().partition("# ")[0]


@pytest.mark.parametrize("table", ["captions", "differences", "comparisons"])
def test_texts_are_exported_with_their_images(rendered, tmp_path, offline, table) -> None:
    tally = pw.open(rendered).export(
        "hf", tmp_path / "out", config=ExportConfig(table=table, verify=True)
    )
    given = {row.key: row for row in pw.open(rendered)[table].rows()}
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)
    splits = {row.subject: row.split for row in pw.open(rendered)["splits"].rows()}
    for split, rows in loaded.items():
        for row in rows:
            assert row["text"] == given[row["key"]].text
            assert splits.get(row["subject"], "train") == split
            assert len(row["images"]) == (1 if table == "captions" else 2)
    assert sum(map(len, loaded.values())) == tally.rows == len(given) > 0


@pytest.mark.parametrize(("table", "column"), [("images", "graph"), ("masks", "masks")])
def test_graphs_and_masks_leave_with_their_images(
    rendered, tmp_path, offline, table, column
) -> None:
    config = ExportConfig(table=table, verify=True)
    pw.open(rendered).export("hf", tmp_path / "out", config=config)
    given = {row.key: row for row in pw.open(rendered)[table].rows()}
    loaded = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=offline)
    assert len(loaded) == len(given) > 0
    for row in loaded:
        (image,) = row["images"]
        expected = given[row["key"]]
        if table == "images":
            graph = expected.graph
            assert SceneGraph.model_validate_json(row[column]) == graph
            assert (image.width, image.height) == (expected.width, expected.height)
        else:
            assert tuple(row[column]) == expected.masks
            assert image.size == (expected.width, expected.height)


def test_differences_of_scenes_have_boxes_and_masks(rendered, tmp_path) -> None:
    pw.open(rendered).export("hf", tmp_path / "out", config=ExportConfig(table="pairs"))
    images = {row.key: row for row in pw.open(rendered)["images"].rows()}
    pairs = {row.key: row for row in pw.open(rendered)["pairs"].rows()}
    regions = 0
    for row in rows_of(tmp_path / "out"):
        pair = pairs[row["key"]]
        for region in row["regions"]:
            graph = images[(pair.first, pair.second)[region["image"]]].graph
            assert region["label"] in {item.shape for item in graph.objects}
            assert Mask.model_validate_json(region["mask"]) in {item.mask for item in graph.objects}
            regions += 1
    assert regions > 0
    assert (tmp_path / "out/coco/train.json").is_file()


def test_an_export_of_nothing_says_what_became_empty(mined, tmp_path, capsys) -> None:
    shutil.copytree(mined / "tables", tmp_path / "album/tables")
    source = str(json.loads((mined / "build.json").read_text())["profile"]["source"])
    values = (
        "mining.min_similarity=0.9999",
        "mining.max_similarity=0.99999",
        "matching.enabled=false",
    )
    settings = [word for value in values for word in ("--set", value)]
    assert run("build", source, "--out", tmp_path / "album", "--until", "mining", *settings) == 1
    empty = (
        "Empty: similar_pairs (no neighbour as similar as a pair may be "
        "(mining.min_similarity=0.9999, "
    )
    assert empty in capsys.readouterr().err
    assert run("export", tmp_path / "album", "--table", "pairs", "--to", tmp_path / "out") == 2
    assert empty in capsys.readouterr().err
    assert run("export", mined, "--table", "captions", "--to", tmp_path / "out") == 2
    assert "was built until mining and has no captions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "csv"], "--format csv: "),
        (["--table", "questions"], "pairwright settings questions"),
        (["--to", "s3://bucket/x"], "s3://bucket/x"),
        (["--format", "openai-batch"], "--model"),
        (["--model", "m"], "--format hf "),
        (["--private"], "--push-to-hub"),
        (["--split", "nowhere"], "choose from train, validation, test"),
        (["--score", "2"], "licences: "),
        (["--kind", "given"], "edited"),
        (["--table", "pears"], "did you mean pairs?"),
        (["--table", "pairs", "--format", "trl"], "--format trl: holds preferences only"),
        (["--table", "pairs", "--kind", "list"], "--kind: "),
        (["--table", "captions", "--split", "test"], "--split: "),
        (["--table", "captions", "--accepted"], "--accepted: "),
    ],
)
def test_wrong_words_of_the_command_line(rendered, tmp_path, capsys, words, message) -> None:
    assert run("export", rendered, "--to", tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_verifying_without_the_packages_for_it(rendered, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(
        export_dataset, "find_spec", lambda name: None if name == "trl" else object()
    )
    assert run("export", rendered, "--format", "trl", "--to", tmp_path / "out", "--verify") == 2
    assert (
        "--verify: --format trl is read with trl, not installed here: python"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
