"""Tests of builds under a real Prefect server on this machine: names, tags, task runs, the table artifact."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a Prefect server on loopback with a database of its own; give the environment that reaches it."""
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-ui"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not healthy(environment["PREFECT_API_URL"]):
            assert process.poll() is None, (home / "log").read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.5)
        yield environment
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def write_photographs(folder: Path, count: int) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    base = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
    for number in range(count):
        changed = base.copy()
        changed[number : number + 8, :8] = rng.integers(0, 256, 3)
        Image.fromarray(changed).save(folder / f"{number:02d}.png")
    (folder / "broken.png").write_bytes(b"")
    return folder


def build(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "pairwright"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def ask(environment: dict[str, str], path: str) -> list[dict[str, object]]:
    return httpx.post(f"{environment['PREFECT_API_URL']}/{path}/filter", json={}, timeout=10).json()


def test_a_build_shows_up_in_prefect(server: dict[str, str], tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 6)
    out = tmp_path / "album"
    words = ["--until", "embeddings", "--set", "run.rows_per_shard_of={images: 3}", "--set", "run.workers=1"]
    done = build(server, "build", str(photographs), "--out", str(out), *words)
    assert done.returncode == 0, done.stderr
    (flow_run,) = ask(server, "flow_runs")
    assert flow_run["name"] == f"build-{out}"
    assert {"album", "scenes"} <= set(flow_run["tags"])
    assert flow_run["state_type"] == "COMPLETED"
    task_runs = ask(server, "task_runs")
    assert sorted(run["name"] for run in task_runs) == [
        "embeddings-00000",
        "images-00000",
        "images-00001",
        "images-00002",
    ]
    assert all(run["state_type"] == "COMPLETED" for run in task_runs)
    assert all({run["name"].split("-")[0]} <= set(run["tags"]) for run in task_runs)
    (artifact,) = ask(server, "artifacts")
    assert artifact["key"] == "build-album"
    assert "truncated" in str(artifact["data"]) or "empty file" in str(artifact["data"])

    again = build(server, "resume", str(out))
    assert again.returncode == 0, again.stderr
    assert len(ask(server, "task_runs")) == len(task_runs), "nothing was owed, so nothing may run"
    assert {run["name"] for run in ask(server, "flow_runs")} == {f"build-{out}", f"resume-{out}"}


def test_a_failing_build_says_why_and_not_how(server: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = build(server, "build", str(tmp_path / "empty"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2, done.stderr
    assert f"error: {tmp_path / 'empty'}" in done.stderr
    assert "HTTP Request" not in done.stderr


def test_without_an_answering_server_the_message_names_it(tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 2)
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    done = build({**os.environ, "PREFECT_API_URL": nowhere}, "build", str(photographs), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert f"error: {nowhere}: no Prefect server answers" in done.stderr
    assert "Traceback" not in done.stderr
