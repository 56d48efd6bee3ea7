"""A training that is killed, again and again, ends like one that never was: bitwise, its retriever,
too."""

import multiprocessing
import os
import random
import signal
import time

import pytest

from pairwright.tasks.training.runs import FINISHING, SAVING
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import logged, settings
from tests.tasks.training.kill_training import TRAINING, train_deaf

LATEST = {TRAINING: 1.0, SAVING: 0.05, FINISHING: 0.05}
"""Seconds in which a kill comes, from when there is this file or folder: a moment of a training."""
RESULTS = (
    "checkpoint/adapter_model.safetensors",
    "retriever/retriever.safetensors",
    "retriever/retriever.json",
)
SETTINGS = {
    "output": {"save_steps": 1, "eval_steps": 7},
    "optimiser": {"max_steps": 20},
    "adpo": LIVELY | {"samples": 2},
}


@pytest.mark.slow
def test_a_killed_training_ends_like_an_unkilled_one(qwen, tmp_path):
    """ADPO's, with its retriever; ``tests/soak`` kills those of the other objectives."""
    config = settings("adpo", qwen, **SETTINGS)
    unkilled, killed = (write_adpo_run(tmp_path, config, name=name) for name in ("no", "yes"))
    assert Killer().run(unkilled)
    assert kill_at([SAVING, TRAINING, SAVING, FINISHING], killed) > 0
    assert logged(killed.run) == logged(unkilled.run)
    for name in RESULTS:
        assert (killed.run.folder / name).read_bytes() == (
            unkilled.run.folder / name
        ).read_bytes(), name


class Killer:
    """Run trainings in processes of their own, and kill them."""

    def __init__(self):
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.tasks.training.kill_training"])

    def run(self, job, moment="", seconds=0):
        """Train; kill so many seconds after a moment, if one is named. Say whether it ended by
        itself."""
        process = self.context.Process(target=train_deaf, args=(job,))
        process.start()
        if moment:
            self._wait(process, job.run.folder / moment)
            process.join(seconds)
            if process.is_alive():
                os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        return process.exitcode == 0

    def _wait(self, process, path):
        while process.is_alive() and not path.exists():
            time.sleep(0.0005)


def kill_at(moments, job, seed=0):
    """Train, killed at these moments and then to the end; return how many kills came while a
    checkpoint was written."""
    killer, rng, saving = Killer(), random.Random(seed), 0
    for moment in moments:
        ended = killer.run(job, moment, rng.random() * LATEST[moment])
        saving += (job.run.folder / SAVING).exists()
        (job.run.folder / TRAINING).unlink(missing_ok=True)
        if ended:
            break
        job.run.clean()
    assert killer.run(job)
    return saving
