"""A run's settings in the Trainer's words."""

from pathlib import Path

import pytest
import torch

from schemas.errors import ConfigError
from schemas.training import TrainConfig
from tasks.training import trainer_arguments
from tasks.training.runs import Run
from tasks.training.trainer_arguments import check_trackers, make_arguments, make_trackers, rate_of


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
        "optimiser": {"batch": 3, "accumulate": 5, "steps": 7, "seed": 11, "clip": 0.5, "checkpointing": True},
        "saving": {"every": 9, "log_every": 2},
    }
    made = make_arguments(Run(tmp_path), config(**given), torch.float32)
    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps, made.max_steps) == (3, 5, 7)
    assert (made.seed, made.data_seed, made.max_grad_norm, made.save_steps, made.logging_steps) == (11, 11, 0.5, 9, 2)
    assert (made.bf16, made.fp16, made.report_to) == (False, False, [])
    assert getattr(made, "activation_checkpointing", None) or made.gradient_checkpointing
    whole = make_arguments(Run(tmp_path), config(optimiser={"epochs": 2.5}), torch.bfloat16)
    assert (whole.max_steps, whole.num_train_epochs, whole.bf16) == (-1, 2.5, True)


def test_a_tracker_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_arguments.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"saving\.report_to: wandb is not installed here: python -m pip install wandb"
    ):
        check_trackers(config(saving={"report_to": ["wandb"]}))
    check_trackers(config())


def test_tensorboard_gets_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tracker,) = make_trackers(Run(tmp_path), config(saving={"report_to": ["tensorboard"]}), step=0)
    assert type(tracker).__name__ == "TensorBoardCallback"
    assert list((tmp_path / "tensorboard").iterdir())
