"""A checkpoint is whole or not there, and what cannot be written says what is left."""

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from pairwright.schemas.errors import TrainingError
from pairwright.tasks.training.runs import SAVING, Run
from pairwright.tasks.training.save_checkpoints import Saving, is_finite


def save(run: Run, step: int, *, keep: int = 2) -> None:
    saving = Saving(run, f"checkpoint-{step}")
    saving.agree(saving.begin)
    saving.agree(lambda: (run.folder / SAVING / saving.name / "weights").write_text(str(step)))
    saving.agree(lambda: saving.publish(keep))


def test_the_latest_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    for step in (2, 9, 10, 11):
        save(run, step)
    assert run.steps() == [10, 11]
    assert (run.checkpoint(11) / "weights").read_text() == "11"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("error", [OSError(28, "No space left"), RuntimeError("short write"), SafetensorError("full")])
def test_what_cannot_be_written_says_what_is_left(error: Exception, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()

    def fail() -> None:
        raise error

    saving = Saving(run, "checkpoint-2")
    saving.agree(saving.begin)
    with pytest.raises(TrainingError, match="checkpoint-2 "):
        saving.agree(fail)
    save(run, 1)
    with pytest.raises(TrainingError, match="checkpoint-1"):
        saving.agree(fail)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize(("value", "finite"), [(1.0, True), (float("nan"), False), (float("inf"), False)])
def test_only_trained_weights_are_looked_at(value: float, finite: bool) -> None:
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.bias[1] = value
    assert is_finite(model) is finite
    model.bias.requires_grad = False
    assert is_finite(model)
    assert is_finite(model.requires_grad_(requires_grad=False))
