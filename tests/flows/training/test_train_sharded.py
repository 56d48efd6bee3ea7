"""Trainings whose weights FSDP spreads over two processes: the result is that of one, and they go
on."""

import shutil

import pytest
from safetensors.torch import load_file

from pairwright.tasks.store.manifest import MANIFEST, read_manifest
from pairwright.tasks.training.runs import Run
from tests.fixtures.dogs_to_train import launch, training_of
from tests.fixtures.runs_to_train import compare, curve

pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch has no FSDP")
pytestmark = pytest.mark.slow
FULL = {"model__tuning": "full", "optimiser__learning_rate": 1e-3}
ADPO = {"adpo__warmup_steps": 3, "adpo__encoder": "heads"}
WEIGHTS = "model.safetensors"


def train(dataset, model, name, *, ranks=2, objective="dpo", **settings):
    """Train with four rows per step, or go on."""
    batch = {"data__max_train_rows": 11, "optimiser__per_device_train_batch_size": 4 // ranks}
    command = training_of(dataset, model, name, objective, **batch | settings)
    done = launch("sharded" if ranks > 1 else "pairwright", *command)
    assert done.returncode == 0, done.stderr
    return Run(dataset / "runs" / name)


@pytest.fixture(scope="module")
def full(dogs, qwen):
    return train(dogs, qwen, "full", **FULL)


def test_adapters(dogs, qwen):
    sharded, alone = (train(dogs, qwen, f"lora{ranks}", ranks=ranks) for ranks in (2, 1))
    compare(sharded, alone)
    kinds = [(kind, rank) for kind in ("pytorch_model_fsdp", "optimizer") for rank in (0, 1)]
    parts = {f"{kind}_0/__{rank}_0.distcp" for kind, rank in kinds}
    listed = read_manifest(sharded.checkpoint(4) / MANIFEST).keys()
    assert parts | {"rng_state_0.pth", "rng_state_1.pth"} <= listed, "parts of both processes"
    names, expected = (
        load_file(run.model / "adapter_model.safetensors").keys() for run in (sharded, alone)
    )
    assert names == expected


def test_a_stopped_run_ends_with_the_same_bytes(dogs, qwen, full):
    stopped = Run(dogs / "runs/stopped")
    shutil.copytree(full.folder, stopped.folder)
    shutil.rmtree(stopped.model)
    shutil.rmtree(stopped.checkpoint(4))
    train(dogs, qwen, "stopped", **FULL)
    assert curve(stopped) == curve(full)
    assert (stopped.model / WEIGHTS).read_bytes() == (full.model / WEIGHTS).read_bytes()


def test_all_weights(dogs, qwen, full):
    """They are those of one process, in the published files' names, tied ones once."""
    compare(full, train(dogs, qwen, "full-alone", ranks=1, **FULL))
    before, after = (load_file(folder / WEIGHTS) for folder in (qwen, full.model))
    assert after.keys() == before.keys()
    assert any((after[name] != before[name]).any() for name in after)


@pytest.mark.parametrize("tuning", [{}, FULL], ids=["lora", "full"])
def test_adpo(tuning, dogs, qwen):
    """The retriever is the same on all ranks; with all weights trained, the reference is a copy on
    each."""
    sharded, alone = (
        train(
            dogs, qwen, f"adpo{len(tuning)}{ranks}", ranks=ranks, objective="adpo", **tuning | ADPO
        )
        for ranks in (2, 1)
    )
    for metric in ("loss", "grad_norm"):
        assert curve(sharded, metric)[:2] == pytest.approx(curve(alone, metric)[:2], rel=1e-3)
