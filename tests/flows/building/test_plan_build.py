"""Plans as a user meets them: a trial, unfinished rows of a dataset, and what is not known."""

import json
import shutil
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import TABLES
from tests.fixtures.command import run

FIRST = ("images", "embeddings", "admitted", "neighbours", "keypoints")
FIRST += ("similar_pairs", "matched_pairs", "pairs")
"""Those that are on up to mining."""
MINED = ("--until", "mining", "--set", "run.workers=1")
SERVED = "models.chat.endpoint=http://127.0.0.1:9/v1"
Capture = pytest.CaptureFixture[str]


def planned(capsys: Capture, *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert run("plan", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def stages(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {stage["stage"]: stage for stage in plan["stages"]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write twelve pictures, each in three sizes of a stripe, so that some are alike; and a build
    of them up to mining, beside."""
    source = tmp_path_factory.mktemp("plan") / "in"
    source.mkdir()
    for number in range(12):
        if number % 3 == 0:
            noise = Image.effect_noise((64, 48), 100).convert("RGB")
        picture = noise.copy()
        picture.paste((255, 0, 0), (0, 0, 8 + number % 3, 8))
        picture.save(source / f"{number:02d}.png")
    assert run("build", source, "--out", source.parent / "out", *MINED) == 0
    return source.parent


@pytest.fixture
def pictures(shared: Path, tmp_path: Path) -> Path:
    """Return a copy of the pictures."""
    return Path(shutil.copytree(shared / "in", tmp_path / "in"))


@pytest.fixture
def out(shared: Path, tmp_path: Path) -> Path:
    """Return a copy of the build."""
    return Path(shutil.copytree(shared / "out", tmp_path / "out"))


def test_a_trial_foresees_the_build_of_all_and_leaves_nothing(
    pictures: Path, out: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    plan = planned(capsys, pictures, *MINED, "--trial", 6)
    assert not list((tmp_path / "temporary").rglob("build.json"))
    assert (plan["items"], plan["new_items"], plan["dataset"]) == (12, 12, "")
    steps = stages(plan)
    assert tuple(steps) == TABLES[: TABLES.index("captions")]
    assert {stage["rows"] for name, stage in steps.items() if name not in FIRST} == {0}
    assert (steps["images"]["inputs"], steps["images"]["rows"]) == (12, 12)
    assert steps["embeddings"]["rows"] == 36, "two descriptors and a hash for each image"
    assert all(steps[name]["seconds"] > 0 for name in ("images", "embeddings", "neighbours"))
    assert plan["total"]["calls"] == 0
    seconds = sum(stage["seconds"] for stage in steps.values())
    assert plan["total"]["seconds"] == pytest.approx(seconds)
    real = sum(path.stat().st_size for path in (out / "tables/images").rglob("*.parquet"))
    assert steps["images"]["bytes"] == pytest.approx(real, rel=0.5)


def test_of_a_dataset_only_what_is_owed_is_planned(
    pictures: Path, out: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = stages(planned(capsys, "--out", out))
    assert all(stage["inputs"] == 0 == stage["seconds"] for stage in nothing.values())
    with monkeypatch.context() as there:
        there.chdir(out)
        assert stages(planned(capsys, "--out", ".")) == nothing
    shutil.rmtree(out / "tables/embeddings")
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    unfinished = stages(planned(capsys, "--out", out))
    assert [unfinished[name]["inputs"] for name in ("images", "embeddings")] == [0, 12]
    Image.new("RGB", (40, 40), (1, 2, 3)).save(pictures / "new.png")
    more = planned(capsys, pictures, "--out", out)
    assert (more["items"], more["new_items"]) == (13, 1)
    images = stages(more)["images"]
    assert (images["inputs"], images["rows"], images["seconds"]) == (1, None, None)
    assert more["total"]["seconds"] is None
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == times


def test_a_source_is_planned_as_it_would_be_built(shared: Path, out: Path, capsys: Capture) -> None:
    """A build without --until goes on to the end, though the last one stopped after mining."""
    resumed = stages(planned(capsys, "--out", out))
    built = stages(planned(capsys, shared / "in", "--out", out))
    again = stages(planned(capsys, shared / "in", "--out", out, *MINED))
    assert "captions" not in resumed
    assert "captions" not in again
    assert built["captions"]["inputs"] == 12
    assert built["images"]["inputs"] == 0


def test_what_nobody_has_measured_is_said(pictures: Path, capsys: Capture) -> None:
    assert run("plan", pictures, "--profile", "laptop", "--set", SERVED) == 0
    printed = capsys.readouterr().out
    assert "12 items" in printed
    profile = load_profile("laptop", [f"source=folder:{pictures}", SERVED])
    running = [stage.name for stage in Pipeline(profile).running]
    first_words = [line.split()[0] for line in printed.splitlines() if line]
    table = first_words[first_words.index("stage") + 1 :]
    assert list(takewhile("Note:".__ne__, table)) == [*running, "total"], "none that is off"
    usual = [name for name in FIRST if name not in ("keypoints", "matched_pairs")]
    assert f"{', '.join(usual)} and {len(running) - 6} more" in printed
    assert "`--trial 50`" in printed


def test_what_descriptors_cannot_do_is_said_of_photographs(
    shared: Path, pictures: Path, out: Path, capsys: Capture
) -> None:
    note = "find near-copies of a photograph"
    assert note in " ".join(planned(capsys, pictures, "--until", "mining")["notes"])
    for words in (
        (pictures, "--until", "sources"),
        ("scenes:", "--until", "mining"),
        (pictures, "--profile", "laptop", "--set", SERVED),
    ):
        assert note not in " ".join(planned(capsys, *words)["notes"])
    capsys.readouterr()
    assert run("build", shared / "in", "--out", out, *MINED) == 0
    assert note in capsys.readouterr().err
    assert run("report", out) == 0
    assert note in (out / "report/index.html").read_text()
