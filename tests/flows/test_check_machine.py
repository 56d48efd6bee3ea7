"""The doctor as a user meets it: what a profile lacks, what mends it, and exit codes."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pytest
from httpx import Request, Response

from pairwright.flows import check_machine
from pairwright.flows.check_machine import check_profile, memory_bytes
from pairwright.flows.find_models import profile_to_fetch
from pairwright.tasks.models.check_packages import Check, ok
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


def test_what_a_profile_lacks_is_named_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor", "--profile", "laptop", "--set", NOWHERE, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    laptop = found["profiles"]["laptop"]
    assert not laptop["can_build"]
    lacks = {(check["area"], check["name"]): check for check in laptop["checks"] if check["state"] == "missing"}
    assert ("served", "models.chat") in lacks
    assert {name for area, name in lacks if area == "weights"} >= {"embedding", "detection", "segmentation", "removals"}
    assert lacks["weights", "embedding"]["mend"].startswith("pairwright fetch --profile laptop")
    assert all(set(check) == {"area", "name", "state", "found", "mend"} for check in found["checks"])
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


def test_a_look_that_fails_is_said() -> None:
    def broken() -> Iterator[Check]:
        yield ok("machine", "first", "here")
        raise OSError("strange machine")

    first, failed = check_machine._look("machine", "second", broken)
    assert (first.state, failed.state, failed.found) == ("ok", "missing", "strange machine")
    assert memory_bytes() > 10**8


def look_at(place: Path | str) -> list[Check]:
    return list(check_machine._look("disk", "dataset", lambda: check_machine._check_place("dataset", str(place))))


def test_a_folder_that_is_to_be_made_is_tried_above_it(tmp_path: Path) -> None:
    (check,) = look_at(tmp_path / "not" / "yet")
    assert check.state != "missing"
    assert str(tmp_path) in check.found
    assert not list(tmp_path.iterdir()), "nothing is left behind"
    (check,) = look_at("memory://doctor/out")
    assert (check.state, "memory://doctor/out" in check.found) == ("ok", True)


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="needs Linux")
def test_what_takes_no_files_is_no_place_for_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "out", Path("/proc")):
        assert look_at(place)[-1].state == "missing"


def test_prefect_is_needed_only_where_it_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_machine._check_prefect("").state == "ok"
    for url in ("http://127.0.0.1:9/api", "nonsense"):
        check = check_machine._check_prefect(url)
        assert (check.state, check.found) == ("missing", f"{url}: no Prefect server answers")
    for said, state in ((version("prefect"), "ok"), ("2.20.3", "warning")):
        answer = Response(200, json=said, request=Request("GET", "http://here"))
        monkeypatch.setattr("httpx.get", lambda *_, answer=answer, **__: answer)
        assert check_machine._check_prefect("http://here/api").state == state


def test_a_prefect_server_that_wants_a_password_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guarded(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers["Authorization"] == "Basic YWRtaW46YTpi" else 401)  # admin:a:b
            self.end_headers()
            self.wfile.write(json.dumps(version("prefect")).encode())

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Guarded) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/api"
        for words, state in (("", "missing"), ("admin:other", "missing"), ("admin:a:b", "ok")):
            monkeypatch.setenv("PREFECT_API_AUTH_STRING", words)
            assert check_machine._check_prefect(url).state == state
        server.shutdown()
