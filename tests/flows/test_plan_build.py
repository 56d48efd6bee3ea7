"""Plans as a user meets them: a trial, what an existing dataset owes, stored rates, and what is not known."""

import json
import shutil
from itertools import takewhile
from pathlib import Path

import pytest
from PIL import Image

from pairwright.flows.find_rates import load_rates, rates_for
from pairwright.flows.load_profile import load_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.stages import TABLES
from tests.flows.conftest import SMALL
from tests.flows.test_cli import run

FIRST = ("images", "embeddings", "admitted", "neighbours", "similar_pairs", "pairs")
"""Those that are on up to mining."""


def planned(capsys: pytest.CaptureFixture[str], *words: object) -> dict:
    assert run("plan", *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def stages(plan: dict) -> dict[str, dict]:
    return {stage["stage"]: stage for stage in plan["stages"]}


def amounts(stage: dict) -> list[dict]:
    return [amount for name, amount in stage.items() if name not in ("stage", "known_from")]


def shown(printed: str) -> list[str]:
    """Return the stages in the table that people read, and the total."""
    lines = iter(printed.splitlines())
    assert any(line.startswith("stage ") for line in lines)
    return list(takewhile("Note:".__ne__, (line.split()[0] for line in lines if line)))


def sets(settings) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Write twelve pictures, each in three sizes of a stripe, so that some are alike."""
    (tmp_path / "in").mkdir()
    for number in range(12):
        picture = Image.effect_noise((64, 48), 100).convert("RGB") if number % 3 == 0 else picture.copy()  # noqa: F821
        picture.paste((255, 0, 0), (0, 0, 8 + number % 3, 8))
        picture.save(tmp_path / "in" / f"{number:02d}.png")
    return tmp_path / "in"


def test_a_trial_foresees_the_build_of_all(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--until", "mining", "--set", "run.workers=1"]
    plan = planned(capsys, pictures, *words, "--trial", 6)
    assert (plan["items"], plan["new_items"], plan["dataset"]) == (12, 12, "")
    found = stages(plan)
    assert tuple(found) == TABLES[: TABLES.index("captions")]
    assert {name: stage["known_from"] for name, stage in found.items()} == {
        name: "the trial" if name in FIRST else "" for name in found
    }
    assert all(not any(amount["high"] for amount in amounts(found[name])) for name in {*found} - {*FIRST})
    assert found["images"]["inputs"] == {"value": 12, "low": 12, "high": 12}
    assert found["images"]["rows"]["value"] == 12
    assert found["embeddings"]["rows"]["value"] == 36, "two descriptors and a hash for each image"
    assert all(found[name]["hours"]["value"] > 0 for name in ("images", "embeddings", "neighbours"))
    assert plan["total"]["calls"]["value"] == 0
    out = tmp_path / "out"
    assert run("build", pictures, "--out", out, *words) == 0
    real = sum(path.stat().st_size for path in (out / "tables" / "images").rglob("*.parquet"))
    capsys.readouterr()
    assert found["images"]["bytes"]["value"] == pytest.approx(real, rel=0.5)


def test_the_trial_goes_unless_it_is_kept(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    words = [pictures, "--until", "sources", "--trial", "2", "--set", "run.workers=1"]
    assert run("plan", *words) == 0
    assert not list((tmp_path / "temporary").rglob("build.json"))
    assert run("plan", *words, "--keep") == 0
    (kept,) = (tmp_path / "temporary").rglob("build.json")
    assert str(kept.parent) in capsys.readouterr().err


def test_of_a_dataset_only_what_is_owed_is_planned(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, words = tmp_path / "out", ["--until", "mining", "--set", "run.workers=1"]
    assert run("build", pictures, "--out", out, *words) == 0
    capsys.readouterr()
    nothing = stages(planned(capsys, "--out", out))
    assert all(stage["inputs"]["value"] == 0 == stage["hours"]["value"] for stage in nothing.values())
    with monkeypatch.context() as there:
        there.chdir(out)
        assert stages(planned(capsys, "--out", ".")) == nothing
    shutil.rmtree(out / "tables" / "embeddings")
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.*")}
    owed = stages(planned(capsys, "--out", out))
    assert [owed[name]["inputs"]["value"] for name in ("images", "embeddings")] == [0, 12]
    Image.new("RGB", (40, 40), (1, 2, 3)).save(pictures / "new.png")
    more = planned(capsys, pictures, "--out", out)
    assert (more["items"], more["new_items"]) == (13, 1)
    # All 12 of 12 gave an image: by Wilson's interval at least 0.7575 of others will.
    assert stages(more)["images"]["rows"] == {"value": 1, "low": 0.7575, "high": 1}
    assert stages(more)["images"]["known_from"].startswith("this dataset")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.*")} == files, "a plan writes nothing"


def test_what_nobody_has_measured_is_said_to_be_unknown(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", pictures, "--profile", "laptop", "--set", "models.chat.endpoint=http://127.0.0.1:9/v1") == 0
    printed = capsys.readouterr().out
    assert "12 items" in printed
    on = [stage.name for stage in Pipeline(load_profile("laptop", [f"source=folder:{pictures}"])).running]
    assert tuple(on[:6]) == FIRST
    assert shown(printed) == [*on, "total"], "of stages that are off there is nothing to say"
    assert f"{', '.join(FIRST)} and {len(on) - 6} more" in printed
    assert "`--trial 50`" in printed


def test_a_budget_that_is_too_small_is_said(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--until", "sources", "--trial", "4", "--set", "run.workers=1", "--set", "run.budget.max_disk_gb=0.000001"]
    assert run("plan", pictures, *words) == 0
    assert "run.budget.max_disk_gb 1e-06 " in capsys.readouterr().out


def test_wrong_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", tmp_path / "none") == 2
    assert run("plan", "--until", "nowhere") == 2
    assert "nowhere: " in capsys.readouterr().err


def test_stored_rates_hold_where_a_stage_is_configured_as_they_were_measured() -> None:
    assert load_rates(), "some are stored"
    for stored in load_rates():
        profile = load_profile(stored.profile, stored.settings)
        line = Pipeline(profile, "").plan()
        assert set(stored.stages) == {one.stage.name for one in line if one.stage.is_on}, stored.machine
        assert set(rates_for(profile, line)) == set(stored.stages)
    larger = load_profile("scenes", ["scenes.width=512", "scenes.worlds=500"])
    line = Pipeline(larger, "").plan()
    found = rates_for(larger, line)
    assert "images" not in found, "larger ones take longer"
    assert "embeddings" in found
    assert "images" in rates_for(load_profile("scenes", ["scenes.worlds=500"]), line)


def test_scenes_are_foreseen_by_stored_rates(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, "--set", "scenes.worlds=500")
    images = stages(plan)["images"]
    assert plan["items"] == 500
    assert images["rows"]["value"] == pytest.approx(1500, rel=0.05), "three photographs of each world"
    assert images["cpu_hours"]["value"] > 0
    assert all(stage["rows"] for stage in plan["stages"]), "stored rates are of the whole line"
    assert stages(plan)["preferences"]["rows"]["value"] > 500


def test_eight_scenes_are_tried_in_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *sets([*SMALL, "scenes.worlds=6"]), "--trial", 8)
    found = stages(plan)
    assert plan["items"] == 6
    assert 12 <= found["images"]["rows"]["value"] <= 18
    assert all(stage["rows"] is not None for name, stage in found.items() if name in FIRST)
    assert found["preferences"]["inputs"] is None or found["preferences"]["inputs"]["high"] >= 1
    on = {stage.name for stage in Pipeline(load_profile("scenes")).running}
    assert {*FIRST} < on < {*found}
    assert {name for name, stage in found.items() if stage["known_from"]} <= on
