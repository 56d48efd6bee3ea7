"""Trainings over two processes: torchrun and accelerate start them, the result is that of one with
larger batches."""

import pytest

from pairwright.tasks.training.runs import Run
from tests.fixtures.dogs_to_train import ROWS, launch, training_of, write_dataset
from tests.fixtures.runs_to_train import compare, curve, read_lines

pytestmark = pytest.mark.slow
UNEVEN = {"data__max_train_rows": 11}
"""Of 11 rows four by four, the third step has three rows: two and one."""
BATCH = "optimiser__per_device_train_batch_size"


def trained(dataset, model, name, launcher, batch, **settings):
    done = launch(launcher, *training_of(dataset, model, name, **{BATCH: batch}, **settings))
    assert done.returncode == 0, done.stderr
    return done, Run(dataset / "runs" / name)


@pytest.fixture(scope="module")
def alone(dogs, qwen):
    """Return the run of one process, its batches as large as those of the others together."""
    return trained(dogs, qwen, "alone", "pairwright", 4, **UNEVEN)[1]


def test_torchrun(dogs, qwen, alone):
    done, run = trained(dogs, qwen, "torchrun", "torchrun", 2, **UNEVEN)
    assert done.stdout.count("4 steps: ") == 1, "only the first process speaks"
    assert done.stderr.count("step 4/4: loss") == 1
    assert run.is_finished
    assert run.data()["processes"] == 2
    compare(run, alone)
    fewer, _ = trained(dogs, qwen, "torchrun", "pairwright", 2, **UNEVEN)
    assert "finished" in fewer.stdout


def test_accelerate(dogs, qwen, alone):
    _, run = trained(dogs, qwen, "accelerate", "accelerate", 2, **UNEVEN)
    assert run.data()["processes"] == 2
    compare(run, alone)


def test_what_is_wrong_is_said_once(dogs, qwen):
    done = launch("torchrun", *training_of(dogs, qwen / "nowhere", "wrong"))
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1


def test_bad_rows_leave_no_rank_waiting(qwen, tmp_path):
    """With one row per rank and step, a rank whose row is refused has nothing to do: the other's
    counts alone."""
    chosen = [f"A dog and {n} balls. " * (40 if n in (3, 17) else 1) for n in range(ROWS)]
    bad = write_dataset(tmp_path / "bad", chosen=chosen)
    settings = {"data__max_train_rows": 0, "optimiser__max_steps": 24}
    settings |= {"model__max_length": 300, "data__eval_split": ""}
    _, two = trained(bad, qwen, "two", "torchrun", 1, **settings)
    _, alone = trained(bad, qwen, "alone", "pairwright", 2, **settings)
    for run in (two, alone):
        reasons = [line["reason"] for line in read_lines(run.refused)]
        assert reasons == ["too long"] * 2, "once each, in two epochs"
        assert len(curve(run)) == 24
    for name in ("loss", "grad_norm"):
        assert curve(two, name)[:2] == pytest.approx(curve(alone, name)[:2], rel=1e-3)
    assert curve(two) == pytest.approx(curve(alone), rel=5e-2)
