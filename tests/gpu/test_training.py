"""Twenty steps on the GPU against the same on the CPU; two processes that speak by NCCL against one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairwright.tasks.training.runs import Run
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import compare, curve, settings, write_run

pytestmark = pytest.mark.gpu
SCRIPT, ROOT = Path(__file__).with_name("train_once.py"), Path(__file__).parents[2]
STEPS, BATCH = 20, 4
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
MOST_AWAY = {"fp32": 0.02, "bf16": 0.1}
"""By how much the loss of a step may be off."""


class Trained:
    """A run that was trained in processes of its own, and what they say of themselves."""

    def __init__(self, folder: Path, said: dict[str, Any]) -> None:
        self.run, self.said, self.losses = Run(folder / "runs/run"), said, np.array(curve(Run(folder / "runs/run")))


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trained]:
    """Return what trains an objective; the same is trained once."""
    start = write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")

    @cache
    def run(objective: str, precision: str, batch: int = BATCH, launcher: str = "", *, gpu: bool = True) -> Trained:
        folder = tmp_path_factory.mktemp(f"{objective}-{precision}")
        optimiser = {"max_steps": STEPS, "per_device_train_batch_size": batch, "precision": precision}
        own = {"adpo": LIVELY} if objective == "adpo" else {}
        quiet = {"data": {"eval_split": ""}, "output": {"save_steps": 100}}
        write = write_adpo_run if objective == "adpo" else write_run
        write(folder, settings(objective, start, optimiser=optimiser, **own, **quiet))
        command = [sys.executable, *(("-m", *launcher.split()) if launcher else ()), str(SCRIPT), str(folder)]
        return Trained(folder, start_process(command, {} if gpu else NO_GPU))

    return run


def start_process(command: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("objective", ["sft", "adpo"])
def test_losses_are_those_of_the_cpu(objective: str, precision: str, train: Any, dry: bool, figure: Any):
    wanted = train(objective, "fp32", gpu=False).losses
    found = train(objective, precision)
    away = np.abs(found.losses - wanted) / np.abs(wanted)
    figure(f"{away.max()}")
    figure(f"{found.losses} {wanted}")
    assert found.said["finished"]
    assert dry or found.said["memory"] > 0
    assert len(found.losses) == STEPS
    assert away.max() <= MOST_AWAY[precision]


def test_two_processes_are_one_with_larger_batches(train: Any, gpus: int, dry: bool, figure: Any):
    if gpus < 2:
        pytest.skip("one GPU: NCCL wants one for each process")
    alone = train("sft", "fp32")
    both = train("sft", "fp32", BATCH // 2, "torch.distributed.run --standalone --nproc-per-node 2")
    figure(f"{both.said}")
    assert both.said["backend"] == ("gloo" if dry else "nccl")
    assert both.said["places"] == [0, 1]
    compare(both.run, alone.run)
