"""Checkpoints are read as tensors; what wants more is refused with its reason and never run."""

import contextlib
import warnings
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from tests.fixtures.hostile_checkpoints import write_payloads

WEIGHTS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "a.bias": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "turned": torch.arange(6.0).reshape(2, 3).T,
}


def assert_same(read: dict[str, torch.Tensor]) -> None:
    assert list(read) == list(WEIGHTS)
    for name, value in WEIGHTS.items():
        assert read[name].dtype == value.dtype
        assert torch.equal(read[name], value)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_tensors_come_back_by_name_and_are_found_in_a_training_state(
    tmp_path: Path, new: bool
) -> None:
    torch.save(WEIGHTS, tmp_path / "w.pth", _use_new_zipfile_serialization=new)
    assert_same(read_checkpoint(tmp_path / "w.pth", field="x"))
    state = {
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
    torch.save(state, tmp_path / "w.pth", _use_new_zipfile_serialization=new)
    assert_same(read_checkpoint(tmp_path / "w.pth", field="x", under="model"))


def test_safetensors_are_known_by_their_ending(tmp_path: Path) -> None:
    save_file(
        {name: value.contiguous() for name, value in WEIGHTS.items()}, tmp_path / "w.safetensors"
    )
    read = read_checkpoint(tmp_path / "w.safetensors", field="x", under="model")
    assert {name: value.tolist() for name, value in read.items()} == {
        k: v.tolist() for k, v in WEIGHTS.items()
    }


def test_no_hostile_pickle_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for name, path in write_payloads(tmp_path / "files", marker).items():
        with pytest.raises(ModelError, match=f"^tagging.ram.checkpoint: {path} ") as caught:
            read_checkpoint(path, field="tagging.ram.checkpoint", under="model")
        assert not marker.exists(), name
        assert "weights_only" not in str(caught.value)
        # A careless reader of the same file makes the marker.
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            torch.load(path, weights_only=False)
        assert marker.exists(), name
        marker.rmdir()


def test_the_reason_says_what_a_pickle_wants(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    torch.save({"w": torch.zeros(1), "price": Decimal(1)}, path)
    with pytest.raises(ModelError, match=r"decimal\.Decimal"):
        read_checkpoint(path, field="x")
    with pytest.raises(ModelError, match="not only tensors"):
        read_checkpoint(path, field="x", idle=["decimal.Decimal"])
    # A class that a training state names without need may be named, and is never made.
    torch.save({"model": {"w": torch.zeros(1)}, "callbacks": {Decimal: 1}}, path)
    assert set(read_checkpoint(path, field="x", under="model", idle=["decimal.Decimal"])) == {"w"}


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.pth"
    torch.save({"w": torch.arange(1000.0), "v": torch.zeros(10)}, path)
    data = path.read_bytes()
    for kept in (0, 100, int(0.99 * len(data))):
        path.write_bytes(data[:kept])
        with pytest.raises(ModelError, match=f"x: {path} "):
            read_checkpoint(path, field="x")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([torch.zeros(2)], r"\blist\b"),
        ({}, r"\bdict\b"),
        ({"w": torch.zeros(2), "epoch": 3}, r"'epoch' .*\bint\b"),
        ({"model": None}, "NoneType"),
    ],
)
def test_what_holds_no_named_tensors_is_refused(tmp_path: Path, value: object, reason: str) -> None:
    torch.save(value, tmp_path / "w.pth")
    with pytest.raises(ModelError, match=f"x: {tmp_path}/w.pth holds .*{reason}"):
        read_checkpoint(tmp_path / "w.pth", field="x", under="model")
