"""The retriever's files: written, read, and refused where they are damaged, hostile or something else."""

import hashlib
import pickle

import pytest
import torch
from safetensors.torch import save_file

from pairwright.schemas.errors import ModelError, TrainingError
from pairwright.tasks.training.retriever.saved import (
    ABOUT,
    NETWORK,
    STATE,
    hash_file,
    load_network,
    load_state,
    save_network,
    save_state,
)


def test_a_state_comes_back_bitwise(tmp_path):
    state = {"retriever": {"weight": torch.rand(3), "numbers": {"baseline": 0.1 + 0.2}}, "watch": {"seen": [[1, 2, 0]]}}
    save_state(tmp_path, state)
    found = load_state(tmp_path)
    assert torch.equal(found["retriever"].pop("weight"), state["retriever"].pop("weight"))
    assert found == state


class Hostile:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    "data",
    [b"", b"no file of torch's", pickle.dumps({"retriever": 1}, 2), pickle.dumps(Hostile(), 2)],
    ids=["empty", "text", "pickle", "hostile"],
)
def test_a_damaged_state_is_refused_by_name(tmp_path, data, capsys):
    (tmp_path / STATE).write_bytes(data)
    with pytest.raises(TrainingError, match=STATE):
        load_state(tmp_path)
    assert "run" not in capsys.readouterr().out


def test_a_hostile_pickle_in_torch_s_own_form_does_not_run(tmp_path, capsys):
    torch.save({"retriever": Hostile(), "watch": 1}, tmp_path / STATE)
    with pytest.raises(TrainingError, match=STATE):
        load_state(tmp_path)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize("state", [{}, {"retriever": 1}, [1]])
def test_something_else_is_no_state(tmp_path, state):
    torch.save(state, tmp_path / STATE)
    with pytest.raises(TrainingError, match=STATE):
        load_state(tmp_path)


def test_no_state_at_all(tmp_path):
    with pytest.raises(TrainingError, match=STATE):
        load_state(tmp_path)


def test_a_network_comes_back_with_what_makes_it(tmp_path):
    weights = {"a": torch.rand(2, 3), "b": torch.rand(4).requires_grad_()}
    save_network(tmp_path / NETWORK, weights, {"encoder": "heads", "width": "8"})
    found, about = load_network(tmp_path / NETWORK)
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert {**about, "format": ""} == {"encoder": "heads", "width": "8", "format": ""}
    assert hash_file(tmp_path / NETWORK) == hashlib.sha256((tmp_path / NETWORK).read_bytes()).hexdigest()


def test_equal_networks_are_equal_files(tmp_path):
    """The file's hash is part of what mined rows are known by."""
    weights, about = {"a": torch.rand(2, 3), "b": torch.rand(4)}, {name: name for name in "abcdefgh"}
    for number in range(5):
        save_network(tmp_path / f"{number}", weights, dict(sorted(about.items(), reverse=bool(number % 2))))
    assert len({hash_file(path) for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("about", ["", "no JSON", "[1]", '{"format": "another"}'])
def test_what_is_said_of_a_network_is_not_trusted(about, tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / NETWORK, metadata={ABOUT: about})
    with pytest.raises(ModelError, match=r"mined\.retriever"):
        load_network(tmp_path / NETWORK)


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / NETWORK
    with pytest.raises(ModelError, match=r"mined\.retriever"):
        load_network(path)
    with pytest.raises(ModelError, match=r"mined\.retriever"):
        hash_file(path)
    path.write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=NETWORK):
        load_network(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ModelError, match=NETWORK):
        load_network(path)
