"""Trainings whose weights FSDP spreads over two processes: the result is that of one, and they go
on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from pairwright.tasks.store.manifest import MANIFEST, read_manifest
from pairwright.tasks.training.runs import Run
from tests.fixtures.command import words_of
from tests.fixtures.runs_to_train import compare, curve
from tests.fixtures.shard_on_cpu import FSDP
from tests.flows.test_train_model import FAST, write_dataset

pytest.importorskip("torch.distributed.fsdp", reason="this PyTorch has no FSDP")
pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
STARTER = Path(__file__).parents[1] / "fixtures/shard_on_cpu.py"
FULL = {"model.tuning": "full", "optimiser.learning_rate": 1e-3}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "dogs")


def start(dataset: Path, model: Path, name: str, *, ranks: int, **more: Any) -> Run:
    """Train with four rows per step, or go on."""
    settings = {
        **FAST,
        "data.max_train_rows": 11,
        "optimiser.per_device_train_batch_size": 4 // ranks,
        **more.pop("settings", {}),
    }
    objective = more.pop("objective", "dpo")
    words = ["train", str(dataset), "--objective", objective, "--name", name, "--model", str(model)]
    launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", str(STARTER)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        **(FSDP if ranks > 1 else {}),
    }
    done = subprocess.run(
        [*(launcher if ranks > 1 else [str(BIN / "pairwright")]), *words, *words_of(settings)],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Run(dataset / "runs" / name)


def go_on_from_the_second_step(dataset: Path, run: Run) -> str:
    """Leave a copy of a finished run as if it had been killed in its third step; return its
    name."""
    stopped = Run(dataset / "runs" / f"{run.folder.name}-stopped")
    shutil.copytree(run.folder, stopped.folder)
    shutil.rmtree(stopped.model)
    shutil.rmtree(stopped.checkpoint(4))
    return stopped.folder.name


def test_adapters(dataset: Path, qwen: Path) -> None:
    sharded = start(dataset, qwen, "lora", ranks=2)
    listed = read_manifest(sharded.checkpoint(4) / MANIFEST).keys()
    parts = [
        f"{kind}_0/__{rank}_0.distcp"
        for kind in ("pytorch_model_fsdp", "optimizer")
        for rank in (0, 1)
    ]
    assert {*parts, "rng_state_0.pth", "rng_state_1.pth"} <= listed, (
        "the weights are in parts, of both processes"
    )
    compare(sharded, start(dataset, qwen, "lora-alone", ranks=1))
    found = load_file(sharded.model / "adapter_model.safetensors")
    assert (
        found.keys()
        == load_file(dataset / "runs/lora-alone/checkpoint/adapter_model.safetensors").keys()
    )


def test_a_stopped_run_ends_with_the_same_bytes(dataset: Path, qwen: Path) -> None:
    sharded = start(dataset, qwen, "full-once", ranks=2, settings=FULL)
    stopped = start(
        dataset, qwen, go_on_from_the_second_step(dataset, sharded), ranks=2, settings=FULL
    )
    assert curve(stopped) == curve(sharded)
    assert (stopped.model / "model.safetensors").read_bytes() == (
        sharded.model / "model.safetensors"
    ).read_bytes()


def test_all_weights(dataset: Path, qwen: Path) -> None:
    """They are those of one process, in the published files' names, tied ones once."""
    sharded = start(dataset, qwen, "full", ranks=2, settings=FULL)
    compare(sharded, start(dataset, qwen, "full-alone", ranks=1, settings=FULL))
    published, found = (load_file(folder / "model.safetensors") for folder in (qwen, sharded.model))
    assert found.keys() == published.keys()
    assert any((found[name] != published[name]).any() for name in found)


@pytest.mark.parametrize("settings", [{}, FULL], ids=["lora", "full"])
def test_adpo(settings: dict[str, Any], dataset: Path, qwen: Path) -> None:
    """The retriever is the same on all ranks; with all weights trained, the reference is a copy on
    each."""
    name = f"adpo{len(settings)}"
    given = {**settings, "adpo.warmup_steps": 3, "adpo.encoder": "heads"}
    sharded = start(dataset, qwen, name, ranks=2, objective="adpo", settings=given)
    alone = start(dataset, qwen, f"{name}-alone", ranks=1, objective="adpo", settings=given)
    for metric in ("loss", "grad_norm"):
        assert curve(sharded, metric)[:2] == pytest.approx(curve(alone, metric)[:2], rel=1e-3)
