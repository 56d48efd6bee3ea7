"""Trainings over two processes: torchrun and accelerate start them, the result is that of one with
larger batches."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pairwright.tasks.training.runs import Run
from tests.fixtures.command import words_of
from tests.fixtures.runs_to_train import compare, curve
from tests.flows.test_train_model import FAST, ROWS, write_dataset

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc-per-node", "2", "-m", "pairwright"],
    "accelerate": [
        "accelerate",
        "launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "-m",
        "pairwright",
    ],
}
SETTINGS = {**FAST, "data.max_train_rows": 11, "optimiser.max_steps": 4}
"""Of 11 rows four by four, the third step has three rows: two and one."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dogs")


def start(
    dataset: Path,
    model: Path,
    name: str,
    *,
    batch: int,
    by: str = "",
    settings: Mapping[str, object] = SETTINGS,
) -> subprocess.CompletedProcess[str]:
    launcher = LAUNCHERS.get(by or name, ["pairwright"])
    settings = {**settings, "optimiser.per_device_train_batch_size": batch}
    words = [
        "train",
        str(dataset),
        "--objective",
        "dpo",
        "--name",
        name,
        "--model",
        str(model),
        *words_of(settings),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    command = [str(BIN / launcher[0]), *launcher[1:], *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=280, check=False
    )


@pytest.fixture(scope="module")
def alone(dataset: Path, qwen: Path) -> Run:
    """Return the run of one process, its batches as large as those of the others together."""
    done = start(dataset, qwen, "alone", batch=4)
    assert done.returncode == 0, done.stderr
    return Run(dataset / "runs/alone")


def test_torchrun(dataset: Path, qwen: Path, alone: Run) -> None:
    done = start(dataset, qwen, "torchrun", batch=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 steps: ") == 1, "only the first process speaks"
    assert done.stderr.count("step 4/4: loss") == 1
    run = Run(dataset / "runs/torchrun")
    assert run.is_finished
    assert run.data()["processes"] == 2
    compare(run, alone)

    fewer = start(dataset, qwen, "torchrun", batch=2, by="pairwright")
    assert (fewer.returncode, "finished" in fewer.stdout) == (0, True)


def test_accelerate(dataset: Path, qwen: Path, alone: Run) -> None:
    done = start(dataset, qwen, "accelerate", batch=2)
    assert done.returncode == 0, done.stderr
    run = Run(dataset / "runs/accelerate")
    assert run.data()["processes"] == 2
    compare(run, alone)


def test_what_is_wrong_is_said_once(dataset: Path, qwen: Path) -> None:
    done = start(dataset, qwen / "nowhere", "torchrun", batch=2)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1


def test_bad_rows_leave_no_rank_waiting(qwen: Path, tmp_path: Path) -> None:
    """With one row per rank and step, a rank whose row is refused has nothing to do: the other's
    counts alone."""
    chosen = [f"A dog and {n} balls. " * (40 if n in (3, 17) else 1) for n in range(ROWS)]
    bad = write_dataset(tmp_path / "bad", chosen=chosen)
    settings = {
        **FAST,
        "data.max_train_rows": 0,
        "optimiser.max_steps": 24,
        "model.max_length": 300,
    }
    settings["data.eval_split"] = ""
    runs: list[Run] = []
    for name, batch in (("torchrun", 1), ("alone", 2)):
        done = start(bad, qwen, name, batch=batch, settings=settings)
        assert done.returncode == 0, done.stderr
        runs.append(Run(bad / "runs" / name))
    for run in runs:
        lines = [json.loads(line) for line in run.refused.read_text().splitlines()]
        assert [line["reason"] for line in lines] == ["too long"] * 2, "once each, in two epochs"
        assert len(curve(run)) == 24
    for name in ("loss", "grad_norm"):
        assert curve(runs[0], name)[:2] == pytest.approx(curve(runs[1], name)[:2], rel=1e-3)
    assert curve(runs[0]) == pytest.approx(curve(runs[1]), rel=5e-2)
