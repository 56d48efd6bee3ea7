"""The doctor as a user meets it: what a profile lacks, what mends it, and exit codes."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from httpx import Request, Response

from pairwright.flows.building import check_machine
from pairwright.flows.building.check_machine import check_profile
from pairwright.flows.building.find_models import profile_to_fetch
from tests.fixtures.command import run

NOWHERE = "models.chat.endpoint=http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no weights of this machine be found."""
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_scenes_can_be_built_anywhere(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--profile", "scenes", "--out", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "scenes: can " in printed
    assert "missing" not in printed
    assert not (tmp_path / "out").exists()


def test_what_a_profile_lacks_is_named_with_what_mends_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("doctor", "--profile", "laptop", "--set", NOWHERE, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    laptop = found["profiles"]["laptop"]
    assert not laptop["can_build"]
    lacks = {
        (check["area"], check["name"]): check
        for check in laptop["checks"]
        if check["state"] == "missing"
    }
    assert ("served", "models.chat") in lacks
    assert {name for area, name in lacks if area == "weights"} >= {
        "embedding",
        "detection",
        "segmentation",
        "removals",
    }
    assert lacks["weights", "embedding"]["mend"].startswith("pairwright fetch --profile laptop")
    assert all(
        set(check) == {"area", "name", "state", "found", "mend"} for check in found["checks"]
    )
    assert run("doctor") == 0
    printed = capsys.readouterr().out
    assert "scenes: can " in printed
    assert "gpu: cannot " in printed
    assert "pairwright doctor --profile laptop" in printed
    assert run("doctor", "--profile", "none") == 2
    assert run("doctor", "--profile", "scenes", "--until", "nowhere") == 2
    assert "nowhere: " in capsys.readouterr().err


def test_only_what_comes_until_a_stage_counts() -> None:
    profile = profile_to_fetch("laptop", [])
    assert {check.area for check in check_profile(profile, "mining")} == {"packages", "weights"}
    assert {check.name for check in check_profile(profile, "sources")} == set()


def test_a_folder_that_is_to_be_made_is_tried_above_it(tmp_path: Path) -> None:
    check = check_machine._check_folder("dataset", str(tmp_path / "not" / "yet"))
    assert check.state != "missing"
    assert str(tmp_path) in check.found
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    (tmp_path / "file").write_text("")
    assert check_machine._check_folder("dataset", str(tmp_path / "file" / "out")).state == "missing"


def test_prefect_is_needed_only_where_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_machine._check_prefect("").state == "ok"
    for url in ("http://127.0.0.1:9/api", "nonsense"):
        check = check_machine._check_prefect(url)
        assert (check.state, check.found) == ("missing", f"{url}: no Prefect server answers")
    for said, state in ((version("prefect"), "ok"), ("2.20.3", "warning")):
        answer = Response(200, json=said, request=Request("GET", "http://here"))
        monkeypatch.setattr("httpx.get", lambda *_, answer=answer, **__: answer)
        assert check_machine._check_prefect("http://here/api").state == state
