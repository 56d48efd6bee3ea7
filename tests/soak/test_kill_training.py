"""Kill whole trainings of the command line, their process group at a random moment, until they were killed often.

Run with ``make soak``; about ten minutes on two cores. Half of the kills come while a checkpoint is written.
"""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors import safe_open

from tasks.training.runs import Run
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.runs_to_train import logged
from tests.flows.test_train_model import FAST, words_of, write_dataset

PAIRWRIGHT = str(Path(sys.executable).parent / "pairwright")
SETTINGS = {**FAST, "loading.limit": 0, "optimiser.steps": 60, "saving.every": 1, "saving.measure_every": 9}


@dataclass
class Training:
    """Be a run, and what the command line is told to do with it."""

    words: list[str]
    run: Run

    def __call__(self, seconds: float | None = None, *, after: Path | None = None) -> int:
        """Train, or go on; kill it so many seconds after a path appears."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.run.folder.parent / "log").open("ab") as log:
            command = [PAIRWRIGHT, *self.words]
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        for there in (False, True) if after else ():  # what a kill before has left goes first
            while process.poll() is None and after.exists() != there:
                time.sleep(0.0005)
        try:
            return process.wait(600 if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def check(self) -> None:
        """Every checkpoint under its name is whole."""
        for step in self.run.steps():
            with safe_open(self.run.checkpoint(step) / "adapter_model.safetensors", "pt") as weights:
                assert all(weights.get_tensor(name).isfinite().all() for name in weights.keys())  # noqa: SIM118


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kills", "objective", "workers"), [(25, "dpo", 0), (25, "mdpo", 2)])
def test_killed_trainings_end_like_an_unkilled_one(tmp_path: Path, kills: int, objective: str, workers: int) -> None:
    rng = random.Random(workers)
    dataset, model = write_dataset(tmp_path / "dogs"), write_qwen2_vl(tmp_path / "qwen")
    words = ["train", str(dataset), "--objective", objective, "--model", str(model)]
    words += words_of({**SETTINGS, "loading.workers": workers})
    unkilled, killed = (
        Training([*words, "--name", name], Run(dataset / "runs" / name)) for name in ("unkilled", "killed")
    )
    (dataset / "runs").mkdir()
    assert unkilled() == 0
    saved = done = 0
    while done < kills:
        saving = killed.run.folder / ".saving"
        ended = killed(rng.random() * 0.05, after=saving) if done % 2 else killed(rng.random() * 20)
        saved += saving.exists()
        killed.check()
        if ended != -signal.SIGKILL:
            break
        done += 1
    assert killed() == 0
    assert saved > kills // 8, "kills came while a checkpoint was written"
    assert logged(killed.run) == logged(unkilled.run)
    first, second = (run.model / "adapter_model.safetensors" for run in (killed.run, unkilled.run))
    assert first.read_bytes() == second.read_bytes()
    assert not [path for path in killed.run.folder.glob(".*") if path.name != ".lock"]
