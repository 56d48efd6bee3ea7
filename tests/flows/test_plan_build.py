"""Plans as a user meets them: a trial, what an existing dataset owes, and what is not known."""

import json
import shutil
from itertools import takewhile
from pathlib import Path

import pytest
from PIL import Image

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import TABLES
from tests.fixtures.command import run

FIRST = (
    "images",
    "embeddings",
    "admitted",
    "neighbours",
    "keypoints",
    "similar_pairs",
    "matched_pairs",
    "pairs",
)
"""Those that are on up to mining."""
MINED = ("--until", "mining", "--set", "run.workers=1")


def planned(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    assert run("plan", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def stages(plan: dict) -> dict[str, dict]:
    return {stage["stage"]: stage for stage in plan["stages"]}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Write twelve pictures, each in three sizes of a stripe, so that some are alike."""
    (tmp_path / "in").mkdir()
    for number in range(12):
        if number % 3 == 0:
            noise = Image.effect_noise((64, 48), 100).convert("RGB")
        picture = noise.copy()
        picture.paste((255, 0, 0), (0, 0, 8 + number % 3, 8))
        picture.save(tmp_path / "in" / f"{number:02d}.png")
    return tmp_path / "in"


def test_a_trial_foresees_the_build_of_all_and_leaves_nothing(
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    plan = planned(capsys, pictures, *MINED, "--trial", 6)
    assert not list((tmp_path / "temporary").rglob("build.json"))
    assert (plan["items"], plan["new_items"], plan["dataset"]) == (12, 12, "")
    found = stages(plan)
    assert tuple(found) == TABLES[: TABLES.index("captions")]
    assert {stage["rows"] for name, stage in found.items() if name not in FIRST} == {0}
    assert (found["images"]["inputs"], found["images"]["rows"]) == (12, 12)
    assert found["embeddings"]["rows"] == 36, "two descriptors and a hash for each image"
    assert all(found[name]["seconds"] > 0 for name in ("images", "embeddings", "neighbours"))
    assert plan["total"]["calls"] == 0
    assert plan["total"]["seconds"] == pytest.approx(
        sum(stage["seconds"] for stage in found.values())
    )
    out = tmp_path / "out"
    assert run("build", pictures, "--out", out, *MINED) == 0
    capsys.readouterr()
    real = sum(path.stat().st_size for path in (out / "tables" / "images").rglob("*.parquet"))
    assert found["images"]["bytes"] == pytest.approx(real, rel=0.5)


def test_of_a_dataset_only_what_is_owed_is_planned(
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"
    assert run("build", pictures, "--out", out, *MINED) == 0
    capsys.readouterr()
    nothing = stages(planned(capsys, "--out", out))
    assert all(stage["inputs"] == 0 == stage["seconds"] for stage in nothing.values())
    with monkeypatch.context() as there:
        there.chdir(out)
        assert stages(planned(capsys, "--out", ".")) == nothing
    shutil.rmtree(out / "tables" / "embeddings")
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    owed = stages(planned(capsys, "--out", out))
    assert [owed[name]["inputs"] for name in ("images", "embeddings")] == [0, 12]
    Image.new("RGB", (40, 40), (1, 2, 3)).save(pictures / "new.png")
    more = planned(capsys, pictures, "--out", out)
    assert (more["items"], more["new_items"]) == (13, 1)
    images = stages(more)["images"]
    assert (images["inputs"], images["rows"], images["seconds"]) == (1, None, None)
    assert more["total"]["seconds"] is None
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == files, (
        "a plan writes nothing"
    )


def test_what_nobody_has_measured_is_said(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = "models.chat.endpoint=http://127.0.0.1:9/v1"
    assert run("plan", pictures, "--profile", "laptop", "--set", served) == 0
    printed = capsys.readouterr().out
    assert "12 items" in printed
    on = [
        stage.name
        for stage in Pipeline(load_profile("laptop", [f"source=folder:{pictures}", served])).running
    ]
    table = [line.split()[0] for line in printed.splitlines() if line]
    assert list(takewhile("Note:".__ne__, table[table.index("stage") + 1 :])) == [*on, "total"], (
        "none that is off"
    )
    usual = [name for name in FIRST if name not in ("keypoints", "matched_pairs")]
    assert f"{', '.join(usual)} and {len(on) - 6} more" in printed
    assert "`--trial 50`" in printed


def test_what_descriptors_cannot_do_is_said_of_photographs(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "find near-copies of a photograph"
    assert said in " ".join(planned(capsys, pictures, "--until", "mining")["notes"])
    assert said not in " ".join(planned(capsys, pictures, "--until", "sources")["notes"])
    assert said not in " ".join(planned(capsys, "scenes:", "--until", "mining")["notes"])
    served = ("--profile", "laptop", "--set", "models.chat.endpoint=http://127.0.0.1:9/v1")
    assert said not in " ".join(planned(capsys, pictures, *served)["notes"])
    out = tmp_path / "out"
    assert run("build", pictures, "--out", out, *MINED) == 0
    assert said in capsys.readouterr().err
    assert run("report", out) == 0
    assert said in (out / "report" / "index.html").read_text()
