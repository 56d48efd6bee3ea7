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


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        (
            {"objective": "dpo", "optimiser": {"batch": 8, "accumulate": 3}},
            "--set optimiser.batch=4 --set optimiser.accumulate=6 (as many rows to a step), or "
            "--set optimiser.checkpointing=true, or smaller images (--set model.most_pixels=100352)",
        ),
        (
            {
                "objective": "sft",
                "model": {"tuning": "full"},
                "optimiser": {"batch": 3, "checkpointing": True},
            },
            "--set optimiser.batch=1 --set optimiser.accumulate=2, or --set model.tuning=lora, or smaller images "
            "(--set model.most_pixels=100352)",
        ),
        (
            {"objective": "namc", "optimiser": {"batch": 32, "accumulate": 16}},
            "--set optimiser.batch=16 --set optimiser.accumulate=32 (as many rows to a step)",
        ),
        (
            {"objective": "namc", "optimiser": {"batch": 1}},
            "a smaller model alone: there is one row at a time already",
        ),
    ],
)
def test_what_helps(values: dict[str, Any], advice: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as caught, fitting(TrainConfig.model_validate(values), Run(tmp_path)):
        take()
    assert str(caught.value).startswith("out of memory: ")
    assert str(caught.value).endswith(f" Less is needed with {advice}")


def test_other_faults_are_not_taken_for_it(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="must match"),
        fitting(TrainConfig.model_validate({"objective": "sft"}), Run(tmp_path)),
    ):
        torch.zeros(2) + torch.zeros(3)


def test_a_run_with_a_checkpoint_keeps_its_settings(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    config = TrainConfig.model_validate({"objective": "namc"})
    with pytest.raises(TrainingError, match="has a checkpoint and keeps its settings"), fitting(config, Run(tmp_path)):
        take()
