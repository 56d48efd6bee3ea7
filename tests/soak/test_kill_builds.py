"""Kill whole builds of the command line, their process group at a random moment, until they have
been killed often.

Run with ``make soak``; about a quarter of an hour on two cores. What is built is a small world of
scenes, to the last stage.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_part
from tests.tasks.store.toy import read_tree

PAIRWRIGHT = str(Path(sys.executable).parent / "pairwright")
SMALL = {
    "scenes.worlds": 4,
    "scenes.width": 96,
    "scenes.height": 72,
    "scenes.samples_per_pixel": 4,
    "run.workers": 2,
    "run.rows_per_shard": 4,
}
KILLS_PER_DATASET = 10
STARTING_SECONDS = 1.0


@dataclass
class Dataset:
    """A dataset on disk, and the command lines that work on it."""

    root: Path
    words: list[str] = field(default_factory=list)

    def run(self, seconds: float | None = None) -> int:
        """Build, or resume once there is something to resume; kill the build after some seconds."""
        words = ["resume", str(self.root)] if (self.root / "build.json").exists() else self._build()
        with (self.root.parent / "log").open("ab") as log:
            process = subprocess.Popen(
                [PAIRWRIGHT, *words], stdout=log, stderr=log, start_new_session=True
            )
        try:
            return process.wait(600 if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def _build(self) -> list[str]:
        settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
        return ["build", "--profile", "scenes", "--out", str(self.root), *settings]

    def status(self) -> list[dict[str, Any]]:
        """Return what ``pairwright status`` says of every stage."""
        words = [PAIRWRIGHT, "status", str(self.root), "--json"]
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["stages"]

    def check_parts(self) -> None:
        """Every file under a final name is whole."""
        folder = Folder(str(self.root))
        for path in self.root.rglob("*.parquet"):
            read_part(Part(folder, str(path.relative_to(self.root))))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [200])
def test_killed_builds_end_like_an_unkilled_one(tmp_path: Path, kills: int) -> None:
    rng = random.Random(0)
    unkilled = Dataset(tmp_path / "unkilled")
    start = time.monotonic()
    assert unkilled.run() == 0
    longest = time.monotonic() - start
    tree, status = read_tree(unkilled.root), unkilled.status()
    assert {stage["failed"] + stage["pending"] for stage in status} == {0}
    done = 0
    while done < kills:
        dataset = Dataset(tmp_path / f"killed-{done}")
        for _ in range(min(KILLS_PER_DATASET, kills - done)):
            # Mostly early, for what is built before a kill stays built; but not before the program
            # has started.
            ended = dataset.run(STARTING_SECONDS + longest * rng.random() ** 3)
            dataset.check_parts()
            if ended != -signal.SIGKILL:
                break
            done += 1
        assert dataset.run() == 0
        assert read_tree(dataset.root) == tree
        assert dataset.status() == status
        assert not [path for path in dataset.root.glob("work/*") if path.is_dir()]
