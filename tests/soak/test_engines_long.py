"""Clusters for longer: shards that no worker survives, Ctrl-C, a killed driver, a standing cluster
over an S3 server.

Run with ``make soak``; some minutes on two cores.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.config import RunConfig
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.store.executor import DIED, ShardFailed
from pairwright.tasks.store.on_dask import DaskWorkers
from tests.fixtures.prefect_server import prefect_server
from tests.fixtures.s3_server import s3_server
from tests.tasks.store.toy import STAGES, ToyConfig, build_toy, read_toy, read_tree, read_words

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
BIN = Path(sys.executable).parent
ROOT = Path(__file__).parent.parent.parent
SMALL = {
    "scenes.worlds": 6,
    "scenes.width": 96,
    "scenes.height": 72,
    "scenes.samples_per_pixel": 4,
    "run.workers": 2,
    "run.rows_per_shard": 3,
    "run.rows_per_shard_of": "{images: 1}",
}
WORDS = [*"abcdefgh"]


def read_or_die(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[Any]:
    """Read words; no process survives "c"."""
    for row in rows:
        if row.name == "c":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from read_words([row], config)


def test_a_shard_that_no_worker_survives_fails_and_the_others_go_on(tmp_path: Path) -> None:
    with DaskWorkers(RunConfig(workers=2)) as workers:
        stages = [replace(STAGES[0], function=read_or_die)]
        counts, outcomes = build_toy(
            tmp_path / "out", WORDS, workers=workers, rows_per_shard=2, stages=stages
        )
    errors = {o.shard.name: o.result.error for o in outcomes if isinstance(o.result, ShardFailed)}
    assert errors == {"images-00001": DIED}
    assert (counts[0].ok, counts[0].pending) == (6, 2)


def build_command(out: Path | str, *more: str) -> list[str]:
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    return [
        "pairwright",
        "build",
        "--profile",
        "scenes",
        "--until",
        "mining",
        "--out",
        str(out),
        *settings,
        *more,
    ]


def read_here(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[Any]:
    """Read words, and note in which process."""
    for row, result in zip(rows, read_words(rows, ToyConfig()), strict=True):
        config.work(str(os.getpid()), row.name)
        yield result


def one_device(config: ToyConfig) -> int:
    return 1


def test_a_stage_with_models_runs_where_a_device_is(tmp_path: Path) -> None:
    pids: dict[str, set[str]] = {}
    with DaskWorkers(RunConfig(workers=2), gpus=1) as workers:
        for what, processes in (("models", one_device), ("none", None)):
            calls = tmp_path / what
            stages = [replace(STAGES[0], function=read_here, processes=processes)]
            config = ToyConfig(calls=str(calls), seconds_per_row=0.3)
            counts, _ = build_toy(
                tmp_path / f"{what}-out",
                WORDS,
                config,
                workers=workers,
                rows_per_shard=1,
                stages=stages,
            )
            assert counts[0].ok == len(WORDS)
            pids[what] = {line.partition(" ")[0] for line in calls.read_text().splitlines()}
    assert (len(pids["models"]), len(pids["none"])) == (1, 2)


def local_command(words: list[str]) -> list[str]:
    return [str(BIN / words[0]), *words[1:]]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset that was built in worker processes of this machine."""
    out = tmp_path_factory.mktemp("local") / "out"
    subprocess.run(local_command(build_command(out)), check=True, capture_output=True, timeout=600)
    return out


def begun(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the first images are written."""
    deadline = time.monotonic() + 600
    while not list(out.glob("tables/images/*/*.parquet")):
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "it does not begin"
        time.sleep(0.05)


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def marked(mark: str) -> list[int]:
    """Return the processes whose environment has the mark, whatever session they are in."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if mark.encode() in environment_of(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_build_leaves_nobody_at_work_and_goes_on(
    number: int, tmp_path: Path, local: Path
) -> None:
    out, mark = tmp_path / "out", f"PAIRWRIGHT_TEST_MARK={tmp_path}"
    variables = {**os.environ, "PAIRWRIGHT_TEST_MARK": str(tmp_path)}
    process = subprocess.Popen(
        local_command(build_command(out, "--set", "run.runner=dask")),
        env=variables,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    begun(out, process)
    os.kill(process.pid, number)
    _, said = process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert process.returncode == 130, said.decode()
        assert b"Stopped" in said
        assert b"Traceback" not in said
    deadline = time.monotonic() + 120
    while left := marked(mark):
        assert time.monotonic() < deadline, [
            Path(f"/proc/{pid}/cmdline").read_bytes() for pid in left
        ]
        time.sleep(0.5)
    done = subprocess.run(
        local_command(["pairwright", "resume", str(out)]),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert read_tree(out) == read_tree(local)


@contextmanager
def dask_cluster(
    folder: Path, variables: dict[str, str]
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers without nannies, each with a "GPU"."""
    place = folder / "scheduler.json"
    loopback = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = [["scheduler", *loopback, "--port", "0", "--scheduler-file", str(place)]]
    one = ["--nthreads", "1", "--no-nanny", "--resources", "GPU=1", "--scheduler-file", str(place)]
    commands += [["worker", *loopback, *one]] * 2
    with (folder / "log").open("wb") as log:
        started = [
            subprocess.Popen(
                [str(BIN / "dask"), *words], env=variables, cwd=folder, stdout=log, stderr=log
            )
            for words in commands
        ]
        try:
            while not (place.exists() and place.stat().st_size):
                assert started[0].poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            yield json.loads(place.read_text())["address"], started[1:]
        finally:
            for process in started:
                process.kill()
                process.wait()


def test_a_standing_cluster_builds_on_an_object_store_and_loses_a_worker(tmp_path: Path) -> None:
    with s3_server() as server:
        server.set_faults(
            {"method": "GET", "path": "/data/", "what": "500", "left": 99, "every": 17},
            {"method": "PUT", "path": "/data/", "what": "reset", "left": 99, "every": 17},
        )
        with (
            dask_cluster(tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)}) as (address, workers),
            DaskWorkers(RunConfig(address=address)) as cluster,
        ):
            config = ToyConfig(seconds_per_row=0.2, calls=str(tmp_path / "calls"))

            def kill() -> None:
                while not (tmp_path / "calls").exists():
                    time.sleep(0.05)
                workers[0].kill()

            thread = threading.Thread(target=kill, daemon=True)
            thread.start()
            counts, outcomes = build_toy(
                "s3://data/toy", WORDS, config, rows_per_shard=2, workers=cluster
            )
            thread.join(10)
        assert not [
            outcome.result for outcome in outcomes if isinstance(outcome.result, ShardFailed)
        ]
        assert {count.failed + count.pending for count in counts} == {0}
        build_toy(tmp_path / "local", WORDS, rows_per_shard=2)
        assert read_toy("s3://data/toy", WORDS) == read_toy(tmp_path / "local", WORDS)


def test_under_prefect_the_workers_of_a_cluster_need_not_know_of_it(
    tmp_path: Path, local: Path
) -> None:
    home = tmp_path / "prefect"
    home.mkdir()
    with prefect_server(home) as server:
        done = server.run(*build_command(tmp_path / "out", "--set", "run.runner=dask"))
        assert done.returncode == 0, done.stderr
        (flow_run,) = server.flow_runs(f"build-{tmp_path / 'out'}")
        runs = [run for step in server.subflows(flow_run) for run in server.task_runs(step)]
    assert {run["state_type"] for run in runs} == {"COMPLETED"}
    assert sum(run["name"].startswith("images-") for run in runs) == 6  # one for each world
    assert read_tree(tmp_path / "out") == read_tree(local)
