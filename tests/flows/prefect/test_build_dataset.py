"""Builds under a real Prefect server on this machine: names, parents, tags, states, logs,
artifacts, and its loss."""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pairwright.flows.building.make_request import resume_request
from pairwright.flows.building.run_build import run_build
from pairwright.flows.versions.version import open_present
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Workers
from tests.fixtures import away
from tests.fixtures.pictures import write_pictures
from tests.fixtures.prefect_server import PrefectServer, free_port, prefect_server
from tests.tasks.store.toy import read_tree


def write_photographs(folder: Path, count: int) -> Path:
    write_pictures(folder, [f"{number:02d}" for number in range(count)])
    (folder / "broken.png").write_bytes(b"")
    return folder


PLUGIN = ("--plugin", away.__file__)


def table_of(server: PrefectServer, key: str) -> list[dict[str, Any]]:
    (artifact,) = server.ask("artifacts", artifacts={"key": {"any_": [key]}})
    return json.loads(artifact["data"])


def lines_on(terminal: str) -> list[str]:
    """Return the lines of the log that a terminal shows, without those of Prefect itself."""
    lines = [line[9:] for line in terminal.splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    return [line for line in lines if not line.startswith(("Beginning ", "View at "))]


def test_a_failing_build_shows_up_in_prefect(prefect: PrefectServer, tmp_path: Path) -> None:
    """Build once; look at its runs, their names, parents, tags, states and logs, and at the
    terminal."""
    out = tmp_path / "web"
    words = (*PLUGIN, "--until", "embeddings", "--set", "run.workers=1")
    done = prefect.run("pairwright", "build", "away:a-b-bad", "--out", out, *words)
    assert done.returncode == 1, done.stderr
    (flow_run,) = prefect.flow_runs(f"build-{out}")
    (step,) = prefect.subflows(flow_run)
    (task_run,) = prefect.task_runs(step)
    assert step["name"] == "mine-pairs-web"
    assert set(flow_run["tags"]) == set(step["tags"]) == {"web", "scenes"}
    assert task_run["name"] == "images-00000"
    assert task_run["task_key"].startswith("images-"), "a task of its own"
    assert set(task_run["tags"]) == {"web", "scenes", "images", "sources"}

    assert {run["state_type"] for run in (flow_run, step, task_run)} == {"FAILED"}
    retry = f"Retry: pairwright resume {out} --stage images --reason 'host not found'"
    assert task_run["state"]["message"].endswith(retry)
    unfinished = step["state"]["message"]
    assert unfinished.startswith("images: ")
    assert unfinished.endswith(retry)
    assert flow_run["state"]["message"].startswith(unfinished)
    assert not list(out.glob("snapshots/*")), "two thirds failed"
    assert "host not found (2)" in str(table_of(prefect, "build-web"))

    lines = prefect.our_lines(flow_run, step)
    shard = next(line for in_task, line in lines if in_task)
    assert re.match("images-00000: .*dropped=1 failed=2", shard)
    assert sorted(line for _, line in lines) == sorted(lines_on(done.stderr)), (
        "each line once, here and there"
    )
    assert "NoneType: None" not in str(prefect.ask("logs")) + done.stderr
    assert done.stderr.count(unfinished) == 1


def test_a_build_has_four_steps(
    rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(rendered, tmp_path / "demo")
    steps: dict[str, list[str]] = {}

    def run_step(step: str, run: Callable[[], Sequence[Counts]]) -> None:
        assert step not in steps
        steps[step] = [count.stage for count in run()]

    request = resume_request(open_present(Folder(str(out))), stage="", reason="")
    with Workers(1) as workers:
        monkeypatch.setattr(workers, "run_step", run_step)
        report = run_build(request, workers)
    assert list(steps) == ["mine-pairs", "write-texts", "reject-images", "build-preferences"]
    assert [stage for stages in steps.values() for stage in stages] == [
        count.stage for count in report.counts
    ]


@pytest.mark.slow
def test_without_an_answering_server_the_message_names_it(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    photographs = write_photographs(tmp_path / "photographs", 2)
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    done = prefect.run(
        "pairwright", "build", photographs, "--out", tmp_path / "out", PREFECT_API_URL=nowhere
    )
    assert done.returncode == 1
    assert f"error: {nowhere}: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_build_whose_server_is_lost_goes_on(tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 300)
    words = ("--until", "embeddings", "--set", "run.rows_per_shard=10", "--set", "run.workers=2")
    (tmp_path / "home").mkdir()
    out, undisturbed = tmp_path / "album", tmp_path / "undisturbed"
    with prefect_server(tmp_path / "home") as server:
        soon = {"PREFECT_CLIENT_MAX_RETRIES": "1"}  # it tries for a minute by default
        build = server.spawn(
            tmp_path / "log", "pairwright", "build", photographs, "--out", out, *words, **soon
        )
        try:
            while not list(out.glob("tables/images/*/*.parquet")):
                assert build.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.05)
            server.end(signal.SIGKILL)
            assert build.poll() is None, "the server was not lost in mid-build"
            assert build.wait(240) == 0, (tmp_path / "log").read_text()
        finally:
            if build.poll() is None:
                build.kill()
        said = (tmp_path / "log").read_text()
        assert f"{out} as version 1" in said
        whole = server.run(
            "pairwright", "build", photographs, "--out", undisturbed, *words, PREFECT_API_URL=""
        )
        assert whole.returncode == 0, whole.stderr
    assert read_tree(out) == read_tree(undisturbed)
