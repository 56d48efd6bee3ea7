"""Checkpoints are read as tensors; what wants more is refused with its reason and never run."""

from decimal import Decimal

import pytest
import torch
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from tests.fixtures.hostile_checkpoints import DAMAGED, PAYLOADS, load_carelessly, write_hostile

WEIGHTS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "a.bias": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "turned": torch.arange(6.0).reshape(2, 3).T,
}
STATE = {
    "model": WEIGHTS,
    "epoch": 3,
    "lr": 1e-4,
    "name": "swin",
    "done": True,
    "config": {"depths": [2, 2, 18, 2]},
    "optimizer": {
        "state": {0: {"step": torch.tensor(3.0)}},
        "param_groups": [{"betas": (0.9, 0.999), "lr": None}],
    },
}
WEIGHT = {"w": torch.zeros(1)}


def read(path, **options):
    return read_checkpoint(path, field="tagging.ram.checkpoint", **options)


def assert_weights(tensors):
    assert list(tensors) == list(WEIGHTS)
    for name, value in WEIGHTS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize(("content", "under"), [(WEIGHTS, ""), (STATE, "model")])
def test_tensors_come_back_by_name(tmp_path, content, under, is_zip):
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=is_zip)
    assert_weights(read(tmp_path / "w.pth", under=under))


def test_safetensors_are_known_by_their_ending(tmp_path):
    contiguous = {name: value.contiguous() for name, value in sorted(WEIGHTS.items())}
    save_file(contiguous, tmp_path / "w.safetensors")
    tensors = read(tmp_path / "w.safetensors", under="model")
    assert_weights({name: tensors[name] for name in WEIGHTS})
    assert len(tensors) == len(WEIGHTS)


@pytest.mark.parametrize("kind", PAYLOADS)
def test_no_hostile_pickle_is_run(tmp_path, kind):
    marker = tmp_path / "ran"
    path = write_hostile(tmp_path / "w.pth", kind, marker)
    with pytest.raises(ModelError, match=f"^tagging.ram.checkpoint: {path} ") as refusal:
        read(path, under="model")
    assert not marker.exists()
    assert "weights_only" not in str(refusal.value)
    load_carelessly(path)
    assert marker.exists()


@pytest.mark.parametrize("kind", [kind for kind in DAMAGED if kind != "another model"])
def test_a_truncated_file_is_refused(tmp_path, kind):
    path = write_hostile(tmp_path / "cut.pth", kind, tmp_path)
    with pytest.raises(ModelError, match=f"tagging.ram.checkpoint: {path} "):
        read(path)


DECIMAL = WEIGHT | {"price": Decimal(1)}


@pytest.mark.parametrize(
    ("content", "idle", "reason"),
    [
        ([torch.zeros(2)], (), r"\blist\b"),
        ({}, (), r"\bdict\b"),
        (WEIGHT | {"epoch": 3}, (), r"'epoch' .*\bint\b"),
        ({"model": None}, (), "NoneType"),
        pytest.param(DECIMAL, (), r"decimal\.Decimal", id="a class"),
        pytest.param(DECIMAL, ["decimal.Decimal"], "not only tensors", id="a class that is made"),
    ],
)
def test_what_holds_more_or_less_than_named_tensors_is_refused(tmp_path, content, idle, reason):
    path = tmp_path / "w.pth"
    torch.save(content, path)
    with pytest.raises(ModelError, match=f"tagging.ram.checkpoint: {path} .*{reason}"):
        read(path, under="model", idle=idle)


def test_a_training_state_may_name_a_class_that_is_never_made(tmp_path):
    torch.save({"model": WEIGHT, "callbacks": {Decimal: 1}}, tmp_path / "w.pth")
    tensors = read(tmp_path / "w.pth", under="model", idle=["decimal.Decimal"])
    assert set(tensors) == {"w"}
