"""What a launcher asks for and cannot have."""

from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.check_launcher import check_launcher

CONFIG = TrainConfig(objective="dpo")


def test_nothing_is_asked_for() -> None:
    check_launcher(CONFIG)


def test_the_first_fsdp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what ``accelerate launch --use_fsdp`` gives where no version is named."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    for version in ("", "1"):
        if version:
            monkeypatch.setenv("FSDP_VERSION", version)
        with pytest.raises(ConfigError, match="--fsdp_version 2"):
            check_launcher(CONFIG)


def test_checkpoints_in_one_piece_lack_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT")
    with pytest.raises(ConfigError, match="--fsdp_state_dict_type SHARDED_STATE_DICT"):
        check_launcher(CONFIG)


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"differential": {"enabled": True}}},
        {"model": {"train_vision": True, "vision_tuning": "full"}},
        {"model": {"train_vision": True}, "optimiser": {"vision_learning_rate": 1e-6}},
    ],
)
@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_what_is_kept_whole_is_not_spread(name: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match="torchrun -m pairwright train"):
        check_launcher(TrainConfig.model_validate({"objective": "sft", **values}))


@pytest.mark.parametrize("name", ["FSDP", "DEEPSPEED"])
def test_weights_are_not_spread_over_cpus(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv(f"ACCELERATE_USE_{name}", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match=rf"use_{name.lower()}: .*torchrun --nproc-per-node 2"):
        check_launcher(CONFIG)
