"""Twenty steps on the GPU against the same on the CPU; two processes, each with a GPU, against
one."""

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

from pairwright.tasks.training.runs import TRAIN, MetricsFile, Run
from tests.fixtures.families_of_models import write_qwen2_vl
from tests.fixtures.retrievers_to_train import LIVELY, write_adpo_run
from tests.fixtures.runs_to_train import compare, curve, settings, write_run
from tests.fixtures.shard_on_cpu import FSDP

pytestmark = pytest.mark.gpu
SCRIPT, ROOT = Path(__file__).with_name("train_once.py"), Path(__file__).parents[2]
STEPS, BATCH = 20, 4
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
ALONE, TWO = (), ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
MOST_AWAY = {"fp32": 0.005, "bf16": 0.03}
"""Share of a step's loss by which it may differ from float32's on the CPU. In float32 as the stored
trajectories, which hold on any CPU: sums in another order, and convolutions that cuDNN rounds to 10
bits. bfloat16 has 8: on a CPU losses differ by 0.0005 (SFT) and 0.003 (ADPO), where a difference of
log-probabilities is what is learnt from."""
REDRAWN = {"sft": 0, "adpo": 2}
"""Steps that may be further away: where rounding moves a draw to another negative, its loss is
another."""


class Trained:
    """A run that was trained in processes of its own, and what these say of themselves."""

    def __init__(self, run: Run, said: dict[str, Any]) -> None:
        self.run, self.said, self.losses = run, said, np.array(curve(run))
        self.speed = MetricsFile(run.metrics).read_until().last(TRAIN)["rows per second"]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trained]:
    """Return what trains an objective; the same is trained once."""
    start = write_qwen2_vl(tmp_path_factory.mktemp("models") / "qwen")

    @cache
    def run(
        objective: str,
        precision: str,
        batch: int = BATCH,
        launcher: Sequence[str] = ALONE,
        more: str = "{}",
    ) -> Trained:
        folder = tmp_path_factory.mktemp(f"{objective}-{precision}")
        optimiser = {
            "max_steps": STEPS,
            "per_device_train_batch_size": batch,
            "precision": precision,
        }
        own = {"adpo": LIVELY} if objective == "adpo" else {}
        quiet = {"data": {"eval_split": ""}, "output": {"save_steps": 100}}
        write = write_adpo_run if objective == "adpo" else write_run
        job = write(folder, settings(objective, start, optimiser=optimiser, **own, **quiet))
        return Trained(
            job.run, start_process([*launcher, str(SCRIPT), str(folder)], json.loads(more))
        )

    return run


def start_process(words: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    """Return what the first process prints at its end."""
    own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("objective", ["sft", "adpo"])
def test_losses_are_those_of_the_cpu(
    objective: str, precision: str, train: Any, dry: bool, figure: Any
):
    wanted, found = train(objective, "fp32", more=json.dumps(NO_GPU)), train(objective, precision)
    assert len(found.losses) == len(wanted.losses) == STEPS
    away = np.abs(found.losses / wanted.losses - 1)
    figure(
        f"losses of {STEPS} steps differ by {away.max():.2g} of their values at the most "
        f"({MOST_AWAY[precision]:g})"
    )
    figure(
        f"{found.speed:.1f} rows/s, on the CPU {wanted.speed:.1f}; {found.said['memory']:.0f} MiB"
    )
    assert found.said["finished"]
    assert dry or found.said["memory"] > 0
    assert np.sort(away)[-1 - REDRAWN[objective]] <= MOST_AWAY[precision]


@pytest.mark.parametrize("weights", ["on each", "spread by FSDP"])
def test_two_processes_are_one_with_larger_batches(
    weights: str, train: Any, gpus: int, dry: bool, figure: Any
):
    if gpus < 2:
        pytest.skip("one GPU: NCCL wants one for each process")
    if dry and weights != "on each":
        pytest.skip(
            "accelerate spreads weights over GPUs alone "
            "(tests/flows/training/test_train_sharded.py does so on CPUs)"
        )
    more = {} if weights == "on each" else FSDP
    alone, both = train("sft", "fp32"), train("sft", "fp32", BATCH // 2, TWO, json.dumps(more))
    figure(f"{both.said['backend']}; {both.speed:.1f} rows/s, {alone.speed:.1f} in one process")
    assert ("gloo" if dry else "nccl") in both.said["backend"]
    assert both.said["places"] == [0, 1]
    compare(both.run, alone.run)
