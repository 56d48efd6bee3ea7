import json
import shutil

import datasets
import numpy as np
import pytest

import pairwright as pw
from pairwright.flows.versions import export_dataset
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.tasks.export.formats import FORMATS, MARKER, README
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.store.files import Folder
from tests.fixtures.command import run


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    return str(tmp_path / "cache")


def source_images(folder):
    return {row.key: row for row in pw.open(folder.url)["images"].rows()}


def test_a_rendered_dataset_loads_with_its_images(rendered, tmp_path, offline):
    tally = pw.open(rendered).export("hf", str(tmp_path / "out"))
    card = (tmp_path / "out/README.md").read_text()
    assert "repeat another one word for word (paper 001, Table 14: 3.07%)." in card
    assert "words on average (paper 003: 40 + 117)" in card
    assert card.index("## Health") < card.index("## What is in it")
    assert "Rows whose chosen text is the longer one" in card
    assert "Rejected images are rendered again without one thing." in card
    assert "Filled holes" not in card
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=offline)
    images = source_images(Folder(str(rendered)))
    seen: dict[str, str] = {}
    groups: dict[str, str] = {}
    found = pw.open(rendered)["rejections"].rows()
    rejecting = {row.key for row in pw.open(rendered)["preferences"].rows() if row.rejected_images}
    assert len(rejecting) == sum(bool(row.maker) for row in found) > 0, (
        "the others' removals passed no check"
    )
    for split, rows in loaded.items():
        for row in rows:
            for shown, key in zip(row["images"], row["image_keys"], strict=True):
                assert np.array_equal(np.asarray(shown), decode_rgb(images[key].image))
                assert seen.setdefault(key, split) == split
                assert groups.setdefault(images[key].group, split) == split
            altered = [
                np.any(np.asarray(a) != np.asarray(b))
                for a, b in zip(
                    row["images"], row["rejected_images"], strict=row["key"] in rejecting
                )
            ]
            assert sorted(altered) == ([False, True] if row["key"] in rejecting else [])
            assert row["chosen"] != row["rejected"]
    assert sum(len(rows) for rows in loaded.values()) == tally.rows > 0
    card = (tmp_path / "out/README.md").read_text()
    assert "version 1" in card
    assert f"| preferences | {tally.rows} | {tally.rows} |" in card


def test_licences_are_selected_and_the_card_says_what_is_left_out(rendered, tmp_path, capsys):
    assert run("export", rendered, "--to", tmp_path / "all", "--licence", "cc0-1.0") == 0
    assert "left out" not in capsys.readouterr().out
    assert "left out" not in (tmp_path / "all/README.md").read_text()
    assert run("export", rendered, "--to", tmp_path / "none", "--licence", "MIT") == 2
    said = capsys.readouterr().err
    assert "licences: CC0-1.0; sources: scenes; splits: " in said
    assert not (tmp_path / "none").exists()


def test_formats_are_explained_and_the_help_names_them(capsys):
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


@pytest.mark.parametrize("form", [name for name in FORMATS if name not in ("hf", "llava")])
def test_every_format_is_written_by_the_command_line(rendered, tmp_path, capsys, form):
    more = ["--model", "m"] if FORMATS[form].needs_model else []
    assert run("export", rendered, "--format", form, "--to", tmp_path / "out", *more) == 0
    said = capsys.readouterr().out
    assert " preferences (train " in said
    assert FORMATS[form].cannot in said
    readme = (tmp_path / "out/README.md").read_text()
    assert FORMATS[form].cannot in readme
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *FORMATS[form].owns,
        README,
        MARKER,
    }
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert run("export", rendered, "--format", form, "--to", tmp_path / "out", *more) == 0
    assert {
        path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()
    } == before


def test_what_was_mined_is_kept_with_its_images_and_decisions(mined, tmp_path, capsys, offline):
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
def test_texts_are_exported_with_the_images_that_they_are_about(rendered, tmp_path, offline, table):
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


def test_an_export_of_nothing_says_what_became_empty(mined, tmp_path, capsys):
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
        (["--split", "nowhere"], "licences: "),
        (["--score", "2"], "licences: "),
        (["--kind", "given"], "edited"),
        (["--table", "pears"], "choose from preferences, pairs"),
        (["--table", "pairs", "--format", "trl"], "--format trl: holds preferences only"),
        (["--table", "pairs", "--kind", "list"], "--kind: "),
        (["--table", "captions", "--split", "test"], "--split: "),
        (["--table", "captions", "--accepted"], "--accepted: "),
    ],
)
def test_wrong_words_of_the_command_line(rendered, tmp_path, capsys, words, message):
    assert run("export", rendered, "--to", tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_verified_by_the_command_line(rendered, tmp_path, capsys, offline):
    assert run("export", rendered, "--format", "trl", "--to", tmp_path / "out", "--verify") == 0
    assert "all rows are valid" in capsys.readouterr().out


def test_verifying_without_the_packages_that_read_it(rendered, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        export_dataset, "find_spec", lambda name: None if name == "trl" else object()
    )
    assert run("export", rendered, "--format", "trl", "--to", tmp_path / "out", "--verify") == 2
    assert (
        "--verify: --format trl is read with trl, not installed here: python"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
