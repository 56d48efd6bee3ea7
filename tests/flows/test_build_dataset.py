"""Builds under a real Prefect server on this machine: names, tags, task runs, messages, artifacts, and its loss."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.prefect_server import PrefectServer, free_port, prefect_server
from tests.tasks.store.toy import read_tree


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


def table_of(server: PrefectServer, key: str) -> list[dict[str, Any]]:
    (artifact,) = server.ask("artifacts", artifacts={"key": {"any_": [key]}})
    return json.loads(artifact["data"])


WORDS = ("--until", "embeddings", "--set", "run.rows_per_shard_of={images: 3}", "--set", "run.workers=1")


def test_a_build_shows_up_in_prefect(prefect: PrefectServer, tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 6)
    out = tmp_path / "album"
    done = prefect.run("pairwright", "build", photographs, "--out", out, *WORDS)
    assert done.returncode == 0, done.stderr
    (flow_run,) = prefect.flow_runs(f"build-{out}")
    assert {"album", "scenes"} <= set(flow_run["tags"])
    assert flow_run["state_type"] == "COMPLETED"
    task_runs = prefect.task_runs(flow_run)
    assert sorted(run["name"] for run in task_runs) == [
        "embeddings-00000",
        "images-00000",
        "images-00001",
        "images-00002",
    ]
    assert all(run["state_type"] == "COMPLETED" for run in task_runs)
    assert all({run["name"].split("-")[0]} <= set(run["tags"]) for run in task_runs)
    assert "empty file" in str(table_of(prefect, "build-album"))

    again = prefect.run("pairwright", "resume", out)
    assert again.returncode == 0, again.stderr
    (flow_run,) = prefect.flow_runs(f"resume-{out}")
    assert not prefect.ask("task_runs", task_runs={"flow_run_id": {"any_": [flow_run["id"]]}}), "nothing was owed"


@pytest.mark.slow
def test_what_failed_is_told_alike_by_prefect_and_by_status(prefect: PrefectServer, tmp_path: Path) -> None:
    addresses = tmp_path / "addresses.txt"
    addresses.write_text("http://nowhere.invalid/a.png\nhttp://nowhere.invalid/b.png\nftp://else.invalid/c.png\n")
    out = tmp_path / "web"
    allowed = ("--until", "embeddings", "--set", "reading.download=true", "--set", "run.workers=1")
    done = prefect.run("pairwright", "build", f"urls:{addresses}", "--out", out, *allowed)
    assert done.returncode == 1, done.stderr

    status = prefect.run("pairwright", "status", out, "--json")
    images = json.loads(status.stdout)["stages"][0]
    assert (images["in"], images["failed"], images["dropped"]) == (3, 2, 1)
    (reason,) = [text for text, number in images["reasons"].items() if number == 2]
    (shown,) = [row for row in table_of(prefect, "build-web") if row["stage"] == "images"]
    assert {name: shown[name] for name in images if name != "reasons"} == {
        name: images[name] for name in images if name != "reasons"
    }
    assert f"{reason} (2)" in shown["reasons"]

    line = f"images: 2 rows failed: {reason} (2). Retry: pairwright resume {out} --stage images --reason "
    (flow_run,) = prefect.flow_runs(f"build-{out}")
    assert flow_run["state_type"] == "FAILED"
    assert line in flow_run["state"]["message"]
    assert "No version was published" in flow_run["state"]["message"], "two thirds failed"
    assert line in prefect.run("pairwright", "status", out).stdout
    (task_run,) = prefect.task_runs(flow_run)
    assert task_run["state_type"] == "FAILED"
    assert task_run["state"]["message"].startswith(
        f"images: 2 of 3 rows failed: {reason} (2). Retry: pairwright resume"
    )

    other = prefect.run("pairwright", "resume", out, "--stage", "images", "--reason", "another reason")
    assert other.returncode == 1
    assert not prefect.ask("task_runs", flow_runs={"name": {"any_": [f"resume-{out}"]}}), "no row failed for that"
    again = prefect.run("pairwright", "resume", out, "--stage", "images", "--reason", reason)
    assert again.returncode == 1
    (task_run,) = prefect.ask("task_runs", flow_runs={"name": {"any_": [f"resume-{out}"]}})
    assert task_run["name"] == "images-00000"
    assert f"images: 2 of 2 rows failed: {reason} (2)" in task_run["state"]["message"], "the dropped row is not retried"


def test_a_failing_build_says_why_and_not_how(prefect: PrefectServer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = prefect.run("pairwright", "build", tmp_path / "empty", "--out", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert f"error: {tmp_path / 'empty'}" in done.stderr
    assert "HTTP Request" not in done.stderr


def test_without_an_answering_server_the_message_names_it(prefect: PrefectServer, tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 2)
    nowhere = f"http://127.0.0.1:{free_port()}/api"
    done = prefect.run("pairwright", "build", photographs, "--out", tmp_path / "out", PREFECT_API_URL=nowhere)
    assert done.returncode == 1
    assert f"error: {nowhere}: no Prefect server answers" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_build_whose_server_is_lost_goes_on(tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photographs", 300)
    words = ("--until", "embeddings", "--set", "run.rows_per_shard=10", "--set", "run.workers=2")
    (tmp_path / "home").mkdir()
    out, undisturbed = tmp_path / "album", tmp_path / "undisturbed"
    with prefect_server(tmp_path / "home") as server:
        soon = {"PREFECT_CLIENT_MAX_RETRIES": "1"}  # it tries for a minute by default
        build = server.spawn(tmp_path / "log", "pairwright", "build", photographs, "--out", out, *words, **soon)
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
        assert "the build goes on" in said
        assert f"Done: {out} as version 1" in said
        whole = server.run("pairwright", "build", photographs, "--out", undisturbed, *words, PREFECT_API_URL="")
        assert whole.returncode == 0, whole.stderr
    assert read_tree(out) == read_tree(undisturbed)
