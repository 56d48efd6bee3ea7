"""The doctor as a user meets it: what a profile lacks, what mends it, and exit codes."""

import json
import time
from collections.abc import Iterator

import pytest

from pairwright.flows import check_machine
from pairwright.flows.check_machine import can_build, check_profile, profile_to_check
from pairwright.schemas.health import Check, missing, ok, warning
from tests.flows.test_cli import run

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


def test_what_a_profile_lacks_is_named_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--profile", "laptop", "--set", NOWHERE, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    laptop = found["profiles"]["laptop"]
    assert not laptop["can_build"]
    lacks = {(check["area"], check["name"]): check for check in laptop["checks"] if check["state"] == "missing"}
    assert ("served", "models.chat at http://127.0.0.1:9/v1") in lacks
    assert {name for area, name in lacks if area == "weights"} >= {"embedding", "detection", "segmentation", "removals"}
    assert lacks["weights", "embedding"]["mend"].startswith("pairwright fetch --profile laptop")
    assert all(set(check) == {"area", "name", "state", "found", "mend"} for check in found["checks"])


def test_without_a_profile_each_is_told_in_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 0
    printed = capsys.readouterr().out
    assert "scenes: can " in printed
    assert "gpu: cannot " in printed
    assert "pairwright doctor --profile laptop" in printed


def test_only_what_comes_until_a_stage_counts() -> None:
    profile = profile_to_check("laptop", [])
    assert {check.area for check in check_profile(profile, "mining")} == {"packages", "weights"}
    assert {check.name for check in check_profile(profile, "sources")} == set()


def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--profile", "none") == 2
    assert run("doctor", "--profile", "scenes", "--until", "nowhere") == 2
    assert "nowhere: " in capsys.readouterr().err


def test_a_look_that_fails_or_never_ends_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Check]:
        yield ok("machine", "first", "here")
        raise OSError("strange machine")

    first, failed = check_machine._look("machine", "second", broken)
    assert (first.state, failed.state) == ("ok", "warning")
    assert failed.found.endswith("OSError: strange machine")
    monkeypatch.setattr(check_machine, "LOOK_SECONDS", 0.05)
    (slow,) = check_machine._look("machine", "third", lambda: time.sleep(1) or [])
    assert (slow.state, "0 s" in slow.found) == ("warning", True)


def test_only_what_is_missing_forbids_a_build() -> None:
    fine = [ok("a", "b", "c"), warning("a", "b", "c")]
    assert can_build(fine)
    assert not can_build([*fine, missing("a", "b", "c")])
