"""The doctor as a user meets it: what a profile lacks, what mends it, and exit codes."""

import json
from importlib.metadata import version

import pytest
from httpx import Request, Response

from pairwright.flows.building import check_machine
from pairwright.flows.building.check_machine import check_profile
from pairwright.flows.building.find_models import profile_to_fetch
from tests.fixtures.command import run

NOWHERE = "models.chat.endpoint=http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch):
    """Let no weights of this machine be found."""
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_scenes_can_be_built_anywhere(tmp_path, capsys):
    assert run("doctor", "--profile", "scenes", "--out", tmp_path / "out") == 0
    output = capsys.readouterr().out
    assert "scenes: can " in output
    assert "missing" not in output
    assert not (tmp_path / "out").exists()


def test_what_a_profile_lacks_is_named_with_what_mends_it(capsys):
    assert run("doctor", "--profile", "laptop", "--set", NOWHERE, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    laptop = report["profiles"]["laptop"]
    assert not laptop["can_build"]
    missing = [check for check in laptop["checks"] if check["state"] == "missing"]
    lacks = {(check["area"], check["name"]): check["mend"] for check in missing}
    weights = {("weights", name) for name in ("embedding", "detection", "segmentation", "removals")}
    assert set(lacks) >= {("served", "models.chat"), *weights}
    assert lacks["weights", "embedding"].startswith("pairwright fetch --profile laptop")
    fields = {"area", "name", "state", "found", "mend"}
    assert all(set(check) == fields for check in report["checks"])


def test_without_a_profile_all_are_checked(capsys):
    assert run("doctor") == 0
    output = capsys.readouterr().out
    assert "scenes: can " in output
    assert "gpu: cannot " in output
    assert "pairwright doctor --profile laptop" in output


def test_an_unknown_profile_or_stage_ends_with_two(capsys):
    assert run("doctor", "--profile", "none") == 2
    assert run("doctor", "--profile", "scenes", "--until", "nowhere") == 2
    assert "nowhere: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("until", "areas"), [("mining", {"packages", "weights"}), ("sources", set())]
)
def test_only_what_comes_until_a_stage_counts(until, areas):
    checks = check_profile(profile_to_fetch("laptop", []), until)
    assert {check.area for check in checks} == areas


def test_a_folder_that_is_to_be_made_is_tried_above_it(tmp_path):
    check = check_machine._check_folder("dataset", str(tmp_path / "not" / "yet"))
    assert check.state != "missing"
    assert str(tmp_path) in check.found
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    (tmp_path / "file").write_text("")
    assert check_machine._check_folder("dataset", str(tmp_path / "file" / "out")).state == "missing"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/api", "nonsense"])
def test_a_prefect_server_that_does_not_answer_is_missing(url):
    check = check_machine._check_prefect(url)
    assert (check.state, check.found) == ("missing", f"{url}: no Prefect server answers")


def test_prefect_is_needed_only_where_it_is_configured():
    assert check_machine._check_prefect("").state == "ok"


@pytest.mark.parametrize(
    ("release", "state"), [(version("prefect"), "ok"), ("2.20.3", "warning")], ids=["same", "old"]
)
def test_another_release_of_prefect_is_a_warning(monkeypatch, release, state):
    answer = Response(200, json=release, request=Request("GET", "http://here"))
    monkeypatch.setattr("httpx.get", lambda *_, **__: answer)
    assert check_machine._check_prefect("http://here/api").state == state
