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
from tests.fixtures.hostile_checkpoints import write_broken, write_payloads

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


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    torch.save({"w": torch.arange(1000.0), "v": torch.zeros(10)}, tmp_path / "whole.pth")
    return tmp_path / "whole.pth"


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_tensors_come_back_by_name(tmp_path: Path, new: bool) -> None:
    torch.save(WEIGHTS, tmp_path / "w.pth", _use_new_zipfile_serialization=new)
    assert_same(read_checkpoint(tmp_path / "w.pth", field="x"))


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_weights_are_found_in_a_training_state(tmp_path: Path, new: bool) -> None:
    state = {
        "model": WEIGHTS, "epoch": 3, "lr": 1e-4, "name": "swin", "done": True, "config": {"depths": [2, 2, 18, 2]},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"betas": (0.9, 0.999), "lr": None}]},
    }  # fmt: skip
    torch.save(state, tmp_path / "w.pth", _use_new_zipfile_serialization=new)
    assert_same(read_checkpoint(tmp_path / "w.pth", field="x", under="model"))


def test_a_file_without_the_key_is_taken_as_it_is(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "w.pth")
    assert_same(read_checkpoint(tmp_path / "w.pth", field="x", under="model"))


def test_modules_states_come_back_without_gradients(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    torch.save({"weight": layer.weight, **{f"s.{k}": v for k, v in layer.state_dict().items()}}, tmp_path / "w.pth")
    read = read_checkpoint(tmp_path / "w.pth", field="x")
    assert set(read) == {"weight", "s.weight", "s.bias"}
    assert torch.equal(read["weight"], layer.weight)
    assert not any(value.requires_grad for value in read.values())


def test_safetensors_are_known_by_their_ending(tmp_path: Path) -> None:
    save_file({name: value.contiguous() for name, value in WEIGHTS.items()}, tmp_path / "w.safetensors")
    read = read_checkpoint(tmp_path / "w.safetensors", field="x", under="model")
    assert {name: value.tolist() for name, value in read.items()} == {k: v.tolist() for k, v in WEIGHTS.items()}


def test_no_hostile_pickle_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    payloads = write_payloads(tmp_path / "files", marker)
    assert len(payloads) > 50
    for name, path in payloads.items():
        with pytest.raises(ModelError) as caught:
            read_checkpoint(path, field="tagging.ram.checkpoint")
        assert not marker.exists(), name
        assert str(caught.value).startswith(f"tagging.ram.checkpoint: {path} "), name


def test_the_payloads_run_where_nothing_guards(tmp_path: Path) -> None:
    """Show that the corpus is live: a careless reader of the same files makes the marker."""
    marker = tmp_path / "ran"
    ran: list[str] = []
    for name, path in write_payloads(tmp_path / "files", marker).items():
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # many fail after they ran
            warnings.simplefilter("ignore")
            torch.load(path, weights_only=False)
        if marker.exists():
            ran.append(name)
            marker.rmdir() if marker.is_dir() else marker.unlink()
    assert len(ran) > 40, sorted(set(write_payloads(tmp_path / "again", marker)) - set(ran))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "zip os.system",
            "'os.system'",
        ),
        ("zip torch.storage._load_from_bytes", "'torch.storage._load_from_bytes'"),
        ("in state", "'os.system'"),
        ("legacy 0", "'os.system'"),
        ("legacy 4", "'os.system'"),
        ("opcode INST", "'os.system'"),
        ("opcode OBJ", "'os.system'"),
        ("opcode STACK_GLOBAL", "'os.system'"),
        ("opcode STACK_GLOBAL by memo", "'os.system'"),
        ("opcode extension", "number 1 of copyreg's extensions"),
        ("opcode two spaces", "'builtins.  eval'"),
        ("tar", r"\btar\b"),
        ("TorchScript", "TorchScript"),
        ("two pickles", "2 files .*data.pkl"),
    ],
)
def test_the_reason_says_what_a_pickle_wants(tmp_path: Path, name: str, reason: str) -> None:
    path = write_payloads(tmp_path / "files", tmp_path / "ran")[name]
    with pytest.raises(ModelError, match=f"x: {path} .*{reason}"):
        read_checkpoint(path, field="x")


def test_broken_files_are_refused(tmp_path: Path, whole: Path) -> None:
    files = write_broken(tmp_path / "files", whole)
    del files["opcodes without end"]  # takes a second; below
    for name, path in files.items():
        with pytest.raises(ModelError) as caught:
            read_checkpoint(path, field="tagging.ram.checkpoint", under="model")
        message = str(caught.value)
        assert message.startswith(f"tagging.ram.checkpoint: {path} "), name
        assert len(message) < 600, name
        assert "weights_only` to `False`" not in message, name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty", "empty"),
        ("folder", "file"),
        ("noise", "no pickle"),
        ("a bomb", "compressed"),
        ("members larger than the file", "members .*larger"),
        ("one number for many", r"'w' .*\(10000000000,\)"),
        ("laughs", "objects"),
        ("opcodes without end", "1,000,000 opcodes"),
        ("a list", r"\blist\b"),
        ("nothing", "nothing"),
        ("a number within", r"'epoch' .*\bint\b"),
        ("a dictionary within", r"'teacher' .*\bdict\b"),
        ("numbers as names", r"'1' .*\bint\b"),
        ("a list under its key", r"\blist\b"),
    ],
)
def test_the_reason_says_what_is_broken(tmp_path: Path, whole: Path, name: str, reason: str) -> None:
    path = write_broken(tmp_path / "files", whole)[name]
    with pytest.raises(ModelError, match=f"x: {path} .*{reason}"):
        read_checkpoint(path, field="x", under="model")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"x: {tmp_path}/none\.pth"):
        read_checkpoint(tmp_path / "none.pth", field="x")


def test_allowed_globals_of_others_open_nothing(tmp_path: Path) -> None:
    """A library in the same process may tell PyTorch to trust more; that is not trusted here."""
    path = tmp_path / "w.pth"
    torch.save({"w": torch.zeros(1), "price": Decimal(1)}, path)
    with (
        torch.serialization.safe_globals([Decimal]),
        pytest.raises(ModelError, match=r"decimal\.Decimal"),
    ):
        read_checkpoint(path, field="x")
