"""Kill whole trainings of the command line, their process group at a random moment, until they were
killed often.

Run with ``make soak``; about ten minutes on two cores. Half of the kills come at any time, half
some steps on, when most of the time goes into checkpoints.
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

from pairwright.tasks.training.runs import Run
from tests.fixtures.command import words_of
from tests.fixtures.dogs_to_train import FAST, write_dataset
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.runs_to_train import logged

PAIRWRIGHT = str(Path(sys.executable).parent / "pairwright")
SETTINGS = {
    **FAST,
    "data.max_train_rows": 0,
    "optimiser.max_steps": 60,
    "output.save_steps": 1,
    "output.eval_steps": 9,
}
KILLS_PER_RUN = 10


@dataclass
class Training:
    """A run, and the command lines that work on it."""

    words: list[str]
    run: Run

    def __call__(self, seconds: float | None = None, *, steps: int = 0) -> int:
        """Train, or go on; kill it after some seconds, which count from when so many checkpoints
        were written."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.run.folder.parent / "log").open("ab") as log:
            command = [PAIRWRIGHT, *self.words, "--name", self.run.folder.name]
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        reached = max(self.run.steps(), default=0) + steps
        while steps and process.poll() is None and max(self.run.steps(), default=0) < reached:
            time.sleep(0.0005)
        try:
            return process.wait(600 if seconds is None else seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def check(self) -> bool:
        """Look whether every checkpoint under its name is whole; say whether one was being
        written."""
        for step in self.run.steps():
            with safe_open(
                self.run.checkpoint(step) / "adapter_model.safetensors", "pt"
            ) as weights:
                assert all(weights.get_tensor(name).isfinite().all() for name in weights.keys())  # noqa: SIM118
        return (self.run.folder / ".saving").exists()

    def result(self) -> tuple[list[tuple[int, float, str, str, float]], bytes]:
        """Return what was logged, and the finished weights."""
        return logged(self.run), (self.run.model / "adapter_model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("kills", "objective", "workers"), [(25, "dpo", 0), (25, "mdpo", 2)])
def test_killed_trainings_end_like_an_unkilled_one(
    tmp_path: Path, kills: int, objective: str, workers: int
) -> None:
    rng = random.Random(workers)
    dataset, model = write_dataset(tmp_path / "dogs"), write_qwen2_vl(tmp_path / "qwen")
    words = ["train", str(dataset), "--objective", objective, "--model", str(model)]
    words += words_of({**SETTINGS, "data.dataloader_num_workers": workers})
    runs = dataset / "runs"
    runs.mkdir()
    unkilled = Training(words, Run(runs / "unkilled"))
    start = time.monotonic()
    assert unkilled() == 0
    longest, done, saving = time.monotonic() - start, 0, 0
    while done < kills:
        killed = Training(words, Run(runs / f"killed-{done}"))
        for number in range(min(KILLS_PER_RUN, kills - done)):
            by_steps = number % 2 == 0
            ended = (
                killed(rng.random() * 0.05, steps=rng.randint(1, 8))
                if by_steps
                else killed(rng.random() * longest)
            )
            saving += killed.check()
            if ended != -signal.SIGKILL:
                break
            done += 1
        assert killed() == 0
        assert killed.result() == unkilled.result()
        assert not [path for path in killed.run.folder.glob(".*") if path.name != ".lock"]
    assert saving > kills // 8, "kills came while a checkpoint was written"
