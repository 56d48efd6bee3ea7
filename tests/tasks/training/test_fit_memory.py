"""What a training says where the memory does not suffice: PyTorch's own errors, told by what helps."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pairwright.schemas.errors import TrainingError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training.fit_memory import fitting
from pairwright.tasks.training.runs import Run

FAR_TOO_MUCH = 2**50
"""Numbers; no machine has 4 PB."""


def take(*_: Any, **__: Any) -> Any:
    return torch.empty(FAR_TOO_MUCH)


SIZE, STEPS = "optimiser.per_device_train_batch_size", "optimiser.gradient_accumulation_steps"


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (
            {"objective": "dpo", "optimiser": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 3}},
            f"--set {SIZE}=4 --set {STEPS}=6 (as many rows to a step), or "
            "--set optimiser.gradient_checkpointing=true, or smaller images (--set model.max_pixels=100352)",
        ),
        (
            {
                "objective": "sft",
                "model": {"tuning": "full"},
                "optimiser": {"per_device_train_batch_size": 3, "gradient_checkpointing": True},
            },
            f"--set {SIZE}=1 --set {STEPS}=2, or --set model.tuning=lora, or smaller images "
            "(--set model.max_pixels=100352)",
        ),
        (
            {"objective": "namc", "optimiser": {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 16}},
            f"--set {SIZE}=16 --set {STEPS}=32 (as many rows to a step)",
        ),
        (
            {"objective": "namc", "optimiser": {"per_device_train_batch_size": 1}},
            "a smaller model alone: there is one row at a time already",
        ),
    ],
)
def test_what_helps(values: dict[str, Any], advice: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught, fitting(TrainConfig.model_validate(values), Run(tmp_path)):
        take()
    assert str(caught.value).endswith(advice)


def test_other_faults_are_not_taken_for_it(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="must match"),
        fitting(TrainConfig.model_validate({"objective": "sft"}), Run(tmp_path)),
    ):
        torch.zeros(2) + torch.zeros(3)


def test_a_run_with_a_checkpoint_keeps_its_settings(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    config = TrainConfig.model_validate({"objective": "namc"})
    with pytest.raises(TrainingError, match="--name"), fitting(config, Run(tmp_path)):
        take()
