"""A package of one module adds a source, a stage, a validator, an embedder and a format; so does
its file alone."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pairwright as pw
from pairwright.flows.cli import app
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.schemas import plugins
from pairwright.schemas.errors import ConfigError
from tests.flows.conftest import SMALL, WIDE, build, with_images_of

EXAMPLE = Path(__file__).parent.parent / "example_plugin"
FILE = "pairwright_example.py"
OWN = [
    "stages.brightness.min_brightness=0.3",
    "embedding.embedders=[mean-colour]",
    "mining.weights=[1]",
]
COLOURS = "red blue navy black white skyblue nope"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Return a folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
    ]
    words = [
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(folder / "installed"),
        str(folder / "source"),
    ]
    subprocess.run([*pip, *words], check=True)
    return folder / "installed"


@pytest.fixture
def installed(site, monkeypatch):
    """Have the package installed during a test."""

    def forget() -> None:
        sys.modules.pop(Path(FILE).stem, None)
        plugins._installed.cache_clear()
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(site)
    forget()
    yield
    monkeypatch.undo()
    forget()


def palette(folder: Path) -> str:
    (folder / "colours.txt").write_text("\n".join(COLOURS.split()))
    return f"palette:{folder / 'colours.txt'}"


def run(*words: str) -> str:
    return CliRunner().invoke(app, words).stdout


def check_palette(stages: list[dict]) -> None:
    counts = {one["stage"]: one for one in stages}
    assert counts["images"]["reasons"] == {"unknown colour": 1}
    assert (counts["brightness"]["rows"], counts["brightness"]["reasons"]) == (4, {"too dark": 2})
    assert counts["embeddings"]["rows"] == 2 * counts["images"]["rows"], (
        "one embedder, and the perceptual hash"
    )


def test_an_installed_package_adds_source_embedder_and_stage(installed, tmp_path):
    out = build(
        tmp_path / "out", palette(tmp_path), until="embeddings", settings=[*OWN, "run.workers=1"]
    )
    check_palette(pw.open(out).status().as_json()["stages"])
    rows = list(pw.open(out)["brightness"].rows())
    assert all(0.3 <= row.brightness <= 1 for row in rows)


def test_what_is_installed_is_listed(installed):
    assert "palette:COLOURS.txt" in run("sources")
    assert "lines\n" in run("formats")
    stage = BY_NAME["brightness"]
    assert (list(stage.reads), stage.writes.__name__) == (["images"], "BrightnessRow")
    (setting,) = json.loads(run("settings", "stages.brightness", "--json"))
    assert (setting["name"], setting["default"]) == ("stages.brightness.min_brightness", 0.1)


def test_texts_pass_a_validator_and_go_out_in_a_format(installed, rendered, tmp_path):
    out = with_images_of(rendered, tmp_path / "out")
    settings = [
        *SMALL,
        *WIDE,
        "captions.validators=[no-metal]",
        "differences.validators=[no-metal]",
    ]
    build(out, None, settings=[*settings, "rejections.enabled=false"])
    counts = {one.stage: one for one in pw.open(out).status().counts}
    before = {one.stage: one for one in pw.open(rendered).status().counts}
    assert 0 < counts["captions"].reasons["speaks of metal"] < before["captions"].rows
    pw.open(out).export("lines", tmp_path / "lines", split="train")
    lines = [
        json.loads(line) for line in (tmp_path / "lines/data/train.jsonl").read_text().splitlines()
    ]
    assert lines
    assert not [
        line for line in lines if "metal" in line["chosen"] or line["rejected"] == line["chosen"]
    ]


def test_a_file_is_enough_and_is_asked_for_again(tmp_path):
    """In processes of their own, of which the build has two workers, which have to find it, too."""
    file, out = Path(shutil.copy(EXAMPLE / FILE, tmp_path / FILE)), tmp_path / "out"
    words = [word for setting in [*OWN, "run.workers=2"] for word in ("--set", setting)]
    words += ["--set", "run.rows_per_shard_of.images=2", "--until", "embeddings"]
    command = [sys.executable, "-m", "pairwright"]
    subprocess.run(
        [*command, "build", palette(tmp_path), "--out", out, "--plugin", file, *words], check=True
    )
    environment = os.environ | {"PAIRWRIGHT_PLUGINS": str(file)}
    said = subprocess.run(
        [*command, "status", out, "--json"], check=True, capture_output=True, env=environment
    ).stdout
    check_palette(json.loads(said)["stages"])
    with pytest.raises(ConfigError, match=str(file)):
        pw.open(out)
