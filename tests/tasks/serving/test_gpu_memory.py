"""The GPUs that a launched vLLM finds, and how it spreads a model over them."""

import pytest

from pairwright.schemas.writing import ChatConfig, LaunchConfig
from pairwright.tasks.serving import gpu_memory
from pairwright.tasks.serving.launch import vllm_command


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give what makes a machine of GPUs: ``nvidia-smi`` tells their MiB, or prints a text."""

    def make(*mebibytes, printed=""):
        lines = (f"{index}, GPU-{index}a, {size}\n" for index, size in enumerate(mebibytes))
        (tmp_path / "printed").write_text(printed or "".join(lines))
        monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "printed")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return make


MACHINES = {
    "copies": (8, {}, "--data-parallel-size 8"),
    "two copies on four each": (
        8,
        {"tensor_parallel": 4},
        "--tensor-parallel-size 4 --data-parallel-size 2",
    ),
    "one copy": (8, {"tensor_parallel": 4, "data_parallel": 1}, "--tensor-parallel-size 4"),
    "one GPU": (1, {}, ""),
}


@pytest.mark.parametrize(("gpus", "launch", "flags"), MACHINES.values(), ids=MACHINES)
def test_gpus_have_copies_of_a_model_and_share_it(machine, gpus, launch, flags) -> None:
    machine(*[81_559] * gpus)
    chat = ChatConfig(model="m", launch=LaunchConfig(enabled=True, **launch))
    command = vllm_command(chat, 1)
    places = [place for place, word in enumerate(command) if word.endswith("-parallel-size")]
    assert " ".join(f"{command[place]} {command[place + 1]}" for place in places) == flags


@pytest.mark.parametrize(
    ("visible", "sizes"), [("2,0", (30_000, 10_000)), ("GPU-1", (20_000,)), ("", ()), ("7", ())]
)
def test_only_visible_gpus_count(machine, monkeypatch, visible, sizes) -> None:
    machine(10_000, 20_000, 30_000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory.gpu_memory() == tuple(size << 20 for size in sizes)


@pytest.mark.parametrize("printed", ["Unable to determine\n", "0, GPU-0, [N/A]\n", "\n"])
def test_gpus_without_a_known_size_are_none(machine, printed) -> None:
    machine(printed=printed)
    assert gpu_memory.gpu_memory() == ()
