"""A schedule on a real Prefect server: two builds come due, the second is killed, the next one goes
on with its work.

Run with ``make soak``; a few minutes.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.fixtures.prefect_server import PrefectServer, prefect_server
from tests.tasks.store.toy import read_tree

SETTINGS = ("--until", "embeddings", "--set", "run.rows_per_shard=5", "--set", "run.workers=2")
EVERY = "* * * * * */20"
PATIENCE_S = 300


@pytest.fixture
def server(tmp_path: Path) -> Generator[PrefectServer]:
    home = tmp_path / "home"
    home.mkdir()
    with prefect_server(home) as running:
        yield running


def add_photographs(source: Path, name: str, count: int, *, seed: int) -> None:
    """Add a folder of photographs to the source, all at once."""
    rng = np.random.default_rng(seed)
    apart = source.with_name(f"{source.name}-coming")
    apart.mkdir()
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(
            apart / f"{number:03d}.png"
        )
    source.mkdir(exist_ok=True)
    apart.rename(source / name)


def wait_for(what: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"waited in vain: {log.read_text()[-5000:]}"
        time.sleep(0.1)
    return found


@contextmanager
def served(server: PrefectServer, album: Path, log: Path) -> Generator[subprocess.Popen[bytes]]:
    process = server.spawn(log, "pairwright", "schedule", album, "--cron", EVERY, "--serve")
    try:
        yield process
    finally:
        kill_tree(process)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started, as a machine's end would."""
    found, more = [process.pid], [process.pid]
    while more:
        more = [child for parent in more for child in children_of(parent)]
        found += more
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def children_of(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def ended(server: PrefectServer, album: Path) -> list[dict[str, Any]]:
    """Return the updates that ended well and did something."""
    return [run for run in server.flow_runs(f"update-{album}") if run["state_name"] == "Completed"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_killed_update_is_gone_on_with_by_the_next(server: PrefectServer, tmp_path: Path) -> None:
    source, album, log = tmp_path / "photographs", tmp_path / "album", tmp_path / "log"
    add_photographs(source, "first", 10, seed=1)
    assert (
        server.run(
            "pairwright", "build", source, "--out", album, *SETTINGS, PREFECT_API_URL=""
        ).returncode
        == 0
    )
    add_photographs(source, "second", 10, seed=2)
    with served(server, album, log) as process:
        wait_for(
            lambda: (album / "snapshots/000002.json").exists() and ended(server, album),
            process,
            log,
        )
        before = read_tree(album)
        add_photographs(source, "third", 1500, seed=3)
        wait_for(lambda: set(read_tree(album)) - set(before), process, log)
    assert not (album / "snapshots/000003.json").exists(), "it was not killed in mid-build"
    whole = len(ended(server, album))
    with served(server, album, log) as process:
        wait_for(
            lambda: (
                (album / "snapshots/000003.json").exists() and len(ended(server, album)) > whole
            ),
            process,
            log,
        )
    spans = sorted((run["start_time"], run["end_time"]) for run in ended(server, album))
    assert all(one[1] <= other[0] for one, other in pairwise(spans)), "two updates overlapped"

    undisturbed, aside = tmp_path / "undisturbed", tmp_path / "aside"
    aside.mkdir()
    for name in ("second", "third"):
        (source / name).rename(aside / name)
    for name in ("", "second", "third"):
        if name:
            (aside / name).rename(source / name)
        done = server.run(
            "pairwright", "build", source, "--out", undisturbed, *SETTINGS, PREFECT_API_URL=""
        )
        assert done.returncode == 0, done.stderr
    assert read_tree(album) == read_tree(undisturbed)
