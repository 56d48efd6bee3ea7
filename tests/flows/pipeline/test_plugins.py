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
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.mining.embed_images import STAGE
from pairwright.tasks.models.devices import count_gpus
from tests.fixtures.command import words_of
from tests.fixtures.photographs import write_photographs
from tests.flows.conftest import SMALL, WIDE, build, with_images_of

EXAMPLE = Path(__file__).parents[2] / "example_plugin"
FILE = "pairwright_example.py"
OWN = [
    "stages.brightness.min_brightness=0.3",
    "embedding.embedders=[mean-colour]",
    "mining.weights=[1]",
]
COLOURS = "red blue navy black white skyblue nope"
PLACES = [
    "embedding.embedders=[mean-colour]",
    "mining.weights=[1]",
    "nouns.finder=long-words",
    "tagging.taggers=[nouns,halves]",
    "detection.detector=middle",
    "segmentation.segmenter=box",
    "removals.inpainter=flat",
    "rejections.scorer=mean-colour",
    "grounding.scorer=mean-colour",
    "grounding.enabled=true",
]
"""A plugin in each place of the line. All that they remove is chosen, if it is removed at all."""
NO_CHECKS = [
    *("elements.max_area=1", "inspection.detector_enabled=false", "inspection.max_rim=1000"),
    *("inspection.max_left=1000", "inspection.max_shift=255", "inspection.min_texture=0"),
]
PIP = "pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation"
PAIRWRIGHT = [sys.executable, "-m", "pairwright"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return a folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, folder / "source")
    words = [*PIP.split(), "--target", folder / "installed", folder / "source"]
    subprocess.run([sys.executable, "-m", *words], check=True)
    return folder / "installed"


@pytest.fixture
def installed(site, monkeypatch):
    """Have the package installed during a test."""

    def forget():
        sys.modules.pop(Path(FILE).stem, None)
        plugins._installed.cache_clear()
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(site)
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture
def palette(tmp_path):
    (tmp_path / "colours.txt").write_text("\n".join(COLOURS.split()))
    return f"palette:{tmp_path / 'colours.txt'}"


def run(*words):
    return CliRunner().invoke(app, words).stdout


def check_palette(stages):
    counts = {stage["stage"]: stage for stage in stages}
    images, brightness = counts["images"], counts["brightness"]
    assert images["reasons"] == {"unknown colour": 1}
    assert (brightness["rows"], brightness["reasons"]) == (4, {"too dark": 2})
    assert counts["embeddings"]["rows"] == 2 * images["rows"], "one embedder and perceptual hash"


def test_an_installed_package_adds_source_embedder_and_stage(installed, palette, tmp_path):
    settings = [*OWN, "run.workers=1"]
    out = build(tmp_path / "out", palette, until="embeddings", settings=settings)
    check_palette(pw.open(out).status().as_json()["stages"])
    rows = list(pw.open(out)["brightness"].rows())
    assert all(0.3 <= row.brightness <= 1 for row in rows)


def write_pairs(folder):
    """Write two pairs of photographs that people described."""
    write_photographs(folder, variants=2)
    names = sorted(path.name for path in folder.iterdir())[:4]
    texts = ("the red table has a green bottle", "a blue chair is beside the window")
    lines = []
    for first, second, text in zip(names[::2], names[1::2], texts, strict=True):
        halves = f"The first image shows a lantern, while in the second image {text}."
        lines.append(json.dumps({"image1": first, "image2": second, "difference": halves}))
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    return f"jsonl-pairs:{folder / 'pairs.jsonl'}"


def test_a_plugin_in_each_place_of_the_line_gives_rows(installed, tmp_path):
    source = write_pairs(tmp_path / "photographs")
    settings = [*PLACES, *NO_CHECKS, "run.workers=1"]
    out = build(tmp_path / "out", source, settings=settings)
    dataset = pw.open(out)
    names = {tag.tagger: tag.name for row in dataset["tags"].rows() for tag in row.tags}
    assert names.keys() == {"nouns", "halves"}
    (box, *_) = next(iter(dataset["boxes"].rows())).boxes
    assert box.x1 == 3 * box.x0, "from a quarter of the width to three"
    assert {row.inpainter for row in dataset["removals"].rows()} == {"1"}
    assert {row.embedder for row in dataset["fitted"].rows()} == {"mean-colour"}
    rejections = list(dataset["rejections"].rows())
    assert any(score.score for row in rejections for score in row.removal_scores)
    record = json.loads((out / "build.json").read_text())["plugins"]
    groups = {"taggers", "detectors", "segmenters", "removers", "scorers", "nouns", "embedders"}
    assert {name.partition(".")[0] for name in record} == groups


def test_models_are_listed_by_place_with_plugins(installed):
    listed = json.loads(run("models", "--json"))
    plugins_by_place = {row["group"]: row["name"] for row in listed if row["plugin"]}
    assert plugins_by_place == {
        "embedders": "mean-colour",
        "taggers": "halves",
        "detectors": "middle",
        "segmenters": "box",
        "removers": "flat",
        "scorers": "mean-colour",
        "nouns": "long-words",
    }
    assert {row["name"] for row in json.loads(run("models", "nouns", "--json"))} == {
        "spacy",
        "long-words",
    }
    assert "facebook/dinov2-large" in run("models", "embedders")


def test_a_plugin_with_weights_has_a_process_per_gpu(installed, monkeypatch):
    from pairwright_example import MEAN_COLOUR

    config = EmbeddingConfig(embedders=("mean-colour",))
    assert STAGE.processes(config) is None
    asked = []
    monkeypatch.setattr(type(MEAN_COLOUR), "has_weights", True, raising=False)
    check = staticmethod(lambda *, download: asked.append(download))
    monkeypatch.setattr(type(MEAN_COLOUR), "check", check, raising=False)
    assert STAGE.processes(config) == count_gpus()
    STAGE.pin(config)
    STAGE.pin(config.model_copy(update={"download": True}))
    assert asked == [False, True]


def test_what_is_installed_is_listed(installed):
    assert "palette:COLOURS.txt" in run("sources")
    assert "lines\n" in run("formats")
    stage = BY_NAME["brightness"]
    assert (list(stage.reads), stage.writes.__name__) == (["images"], "BrightnessRow")
    (setting,) = json.loads(run("settings", "stages.brightness", "--json"))
    assert (setting["name"], setting["default"]) == ("stages.brightness.min_brightness", 0.1)


def test_texts_pass_a_validator_and_go_out_in_a_format(installed, rendered, tmp_path):
    out = with_images_of(rendered, tmp_path / "out")
    validators = [f"{section}.validators=[no-metal]" for section in ("captions", "differences")]
    build(out, None, settings=[*SMALL, *WIDE, *validators, "rejections.enabled=false"])
    counts, before = (
        {count.stage: count for count in pw.open(folder).status().counts}
        for folder in (out, rendered)
    )
    assert 0 < counts["captions"].reasons["speaks of metal"] < before["captions"].rows
    pw.open(out).export("lines", tmp_path / "lines", split="train")
    text = (tmp_path / "lines/data/train.jsonl").read_text()
    pairs = [json.loads(line) for line in text.splitlines()]
    assert pairs
    assert all("metal" not in pair["chosen"] for pair in pairs)
    assert all(pair["rejected"] != pair["chosen"] for pair in pairs)


def test_a_file_is_enough_and_is_asked_for_again(palette, tmp_path):
    """In processes of their own, of which the build has two workers, which have to find it, too."""
    file, out = Path(shutil.copy(EXAMPLE / FILE, tmp_path / FILE)), tmp_path / "out"
    settings = [*OWN, "run.workers=2", "run.rows_per_shard_of.images=2"]
    words = ["build", palette, "--out", out, "--plugin", file, "--until", "embeddings"]
    subprocess.run([*PAIRWRIGHT, *words, *words_of(settings)], check=True)
    environment = os.environ | {"PAIRWRIGHT_PLUGINS": str(file)}
    status = [*PAIRWRIGHT, "status", out, "--json"]
    done = subprocess.run(status, check=True, capture_output=True, env=environment)
    check_palette(json.loads(done.stdout)["stages"])
    with pytest.raises(ConfigError, match=str(file)):
        pw.open(out)
