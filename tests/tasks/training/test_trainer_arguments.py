"""A run's settings in the Trainer's words."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerControl, TrainerState

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training import trainer_arguments
from pairwright.tasks.training.runs import Run
from pairwright.tasks.training.trainer_arguments import check_trackers, make_arguments, make_trackers, rate_of


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
    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps, made.max_steps) == (3, 5, 7)
    assert (made.seed, made.data_seed, made.max_grad_norm, made.save_steps, made.logging_steps) == (11, 11, 0.5, 9, 2)
    assert (made.bf16, made.fp16, made.report_to) == (False, False, [])
    assert getattr(made, "activation_checkpointing", None) or made.gradient_checkpointing
    whole = make_arguments(Run(tmp_path), config(optimiser={"num_train_epochs": 2.5}), torch.bfloat16)
    assert (whole.max_steps, whole.num_train_epochs, whole.bf16) == (-1, 2.5, True)


def test_a_tracker_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_arguments.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"output\.report_to: wandb .*python -m pip install wandb"):
        check_trackers(config(output={"report_to": ["wandb"]}))
    check_trackers(config())


def test_tensorboard_gets_the_settings_and_what_is_measured_last(tmp_path: Path) -> None:
    """The last measurement comes when the Trainer has told it that the training is over."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tracker,) = make_trackers(Run(tmp_path), config(output={"report_to": ["tensorboard"]}), step=0)
    state, control = TrainerState(global_step=7, is_world_process_zero=True), TrainerControl()
    made = make_arguments(Run(tmp_path), config(), torch.float32)
    tracker.on_log(made, state, control, logs={"loss": 0.5})
    tracker.on_train_end(made, state, control)
    tracker.on_log(made, state, control, logs={"eval_loss": 0.25})
    files = [events.EventAccumulator(str(path)) for path in sorted((tmp_path / "tensorboard").iterdir())]
    told = {name: file.Reload().Scalars(name)[0] for file in files for name in file.Reload().Tags()["scalars"]}
    assert {name: (event.step, event.value) for name, event in told.items()} == {
        "train/loss": (7, 0.5),
        "eval/loss": (7, 0.25),
    }
    (text,) = (
        file.Tensors("settings/text_summary") for file in files if "settings/text_summary" in file.Tags()["tensors"]
    )
    assert b"objective: dpo" in text[0].tensor_proto.string_val[0]


@pytest.fixture
def wandb() -> Any:
    """Give W&B's library, without what it remembers of other tests."""
    library = pytest.importorskip("wandb")
    library.teardown()
    yield library
    library.teardown()


def test_wandb_goes_on_with_a_run_under_its_name(wandb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    names: list[str] = []
    for step in (0, 4, 0):
        make_trackers(Run(tmp_path / "mine"), config(output={"report_to": ["wandb"]}), step=step)
        assert (wandb.run.name, wandb.config["objective"], wandb.config["dpo"]["beta"]) == ("mine", "dpo", 0.1)
        names.append(wandb.run.id)
        wandb.finish()
    assert names[0] == names[1] != names[2]


@pytest.mark.usefixtures("wandb")
def test_nobody_is_logged_in_to_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"output\.report_to: wandb: .*wandb login; .*WANDB_MODE=offline"):
        check_trackers(config(output={"report_to": ["wandb"]}))
