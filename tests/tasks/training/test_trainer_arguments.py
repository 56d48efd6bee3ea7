"""A run's settings in the Trainer's words."""

from pathlib import Path

import pytest
import torch

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training import check_environment
from pairwright.tasks.training.check_environment import can_shard, check_launcher
from pairwright.tasks.training.fit_preferences import make_arguments, rate_of
from pairwright.tasks.training.runs import Run


def config(**values: object) -> TrainConfig:
    return TrainConfig.model_validate({"objective": "dpo", **values})


def test_rates() -> None:
    """Paper 000's, RLAIF-V's, LoRA's, and the one that is set."""
    assert rate_of(config()) == 1e-4
    full = {"model": {"tuning": "full"}}
    assert [rate_of(config(**full, objective=one)) for one in ("sft", "dpo", "adavip", "adpo")] == [
        *[5e-7, 5e-7, 5e-7, 3e-6]
    ]
    assert rate_of(config(**full, optimiser={"learning_rate": 0.25})) == 0.25


def test_settings_arrive(tmp_path: Path) -> None:
    given = {
        "seed": 11,
        "optimiser": {
            "per_device_train_batch_size": 3,
            "gradient_accumulation_steps": 5,
            "max_steps": 7,
            "max_grad_norm": 0.5,
            "gradient_checkpointing": True,
        },
        "output": {"save_steps": 9, "logging_steps": 2},
    }
    made = make_arguments(Run(tmp_path), config(**given), torch.float32)
    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps, made.max_steps) == (
        3,
        5,
        7,
    )
    assert (made.seed, made.data_seed, made.max_grad_norm, made.save_steps, made.logging_steps) == (
        11,
        11,
        0.5,
        9,
        2,
    )
    assert (made.bf16, made.fp16, made.report_to) == (False, False, [])
    assert getattr(made, "activation_checkpointing", None) or made.gradient_checkpointing
    whole = make_arguments(
        Run(tmp_path), config(optimiser={"num_train_epochs": 2.5}), torch.bfloat16
    )
    assert (whole.max_steps, whole.num_train_epochs, whole.bf16) == (-1, 2.5, True)


def test_trackers_get_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported = config(output={"report_to": ["wandb"]})
    made = make_arguments(Run(tmp_path / "album"), reported, torch.float32)
    assert (made.report_to, made.run_name) == (["wandb"], "album")
    monkeypatch.setattr(check_environment, "find_spec", lambda _name: None)
    with pytest.raises(
        ConfigError, match=r"output\.report_to: wandb .*python -m pip install wandb"
    ):
        check_environment.check_libraries(reported)


CONFIG = TrainConfig(objective="dpo")


def test_the_first_fsdp_and_checkpoints_in_one_piece_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first version is what ``accelerate launch --use_fsdp`` gives where none is named."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="--fsdp_version 2"):
        check_launcher(CONFIG, can_shard=can_shard(CONFIG))
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT")
    with pytest.raises(ConfigError, match="--fsdp_state_dict_type SHARDED_STATE_DICT"):
        check_launcher(CONFIG, can_shard=can_shard(CONFIG))


def test_what_cannot_be_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match=r"NAMC.*torchrun --nproc-per-node 2 -m pairwright train"):
        check_launcher(TrainConfig(objective="namc"), can_shard=False)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="use_fsdp needs several GPUs"):
            check_launcher(CONFIG, can_shard=can_shard(CONFIG))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError, match="DeepSpeed is not supported"):
        check_launcher(CONFIG, can_shard=can_shard(CONFIG))
