"""A run's settings in the Trainer's words."""

import pytest
import torch

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training import check_environment
from pairwright.tasks.training.check_environment import can_shard, check_launcher
from pairwright.tasks.training.fit_preferences import make_arguments, rate_of
from pairwright.tasks.training.runs import Run


def config_of(objective="dpo", **values):
    return TrainConfig.model_validate({"objective": objective, **values})


@pytest.mark.parametrize(
    ("objective", "tuning", "optimiser", "rate"),
    [
        ("dpo", "lora", {}, 1e-4),
        ("sft", "full", {}, 5e-7),
        ("dpo", "full", {}, 5e-7),
        ("adavip", "full", {}, 5e-7),
        ("adpo", "full", {}, 3e-6),
        ("sft", "projector", {}, 1e-3),
        ("dpo", "full", {"learning_rate": 0.25}, 0.25),
    ],
)
def test_rates(objective, tuning, optimiser, rate):
    """LoRA's, RLAIF-V's, paper 000's, LLaVA-1.5's of a projector, and the one that is set."""
    config = config_of(objective, model={"tuning": tuning}, optimiser=optimiser)
    assert rate_of(config) == rate


def test_settings_arrive(tmp_path):
    optimiser = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5, "max_steps": 7}
    optimiser |= {"max_grad_norm": 0.5}
    output = {"save_steps": 9, "logging_steps": 2}
    config = config_of(
        seed=11, optimiser={**optimiser, "gradient_checkpointing": True}, output=output
    )
    arguments = make_arguments(Run(tmp_path), config, torch.float32)
    expected = {"seed": 11, "data_seed": 11, **optimiser, **output}
    assert {name: getattr(arguments, name) for name in expected} == expected
    assert (arguments.bf16, arguments.fp16, arguments.report_to) == (False, False, [])
    assert arguments.activation_checkpointing


@pytest.mark.parametrize(
    ("optimiser", "steps"),
    [({}, 10), ({"warmup_ratio": 0.03}, 3), ({"warmup_steps": 25}, 25), ({"warmup_steps": 1}, 1)],
)
def test_a_warm_up_has_a_share_or_a_number_of_steps(optimiser, steps, tmp_path):
    arguments = make_arguments(Run(tmp_path), config_of(optimiser=optimiser), torch.float32)
    assert arguments.get_warmup_steps(100) == steps


def test_epochs_arrive_where_no_steps_are_set(tmp_path):
    config = config_of(optimiser={"num_train_epochs": 2.5})
    arguments = make_arguments(Run(tmp_path), config, torch.bfloat16)
    assert (arguments.max_steps, arguments.num_train_epochs) == (-1, 2.5)
    assert arguments.bf16


def test_trackers_get_the_run(tmp_path, monkeypatch):
    config = config_of(output={"report_to": ["wandb"]})
    arguments = make_arguments(Run(tmp_path / "album"), config, torch.float32)
    assert (arguments.report_to, arguments.run_name) == (["wandb"], "album")
    monkeypatch.setattr(check_environment, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"report_to: wandb .*python -m pip install wandb"):
        check_environment.check_libraries(config)


FSDP, WHOLE = {"FSDP_VERSION": "2"}, {"FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}
CPU = {"ACCELERATE_USE_CPU": "true"}
NOT_ON_CPUS = pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")


@pytest.mark.parametrize(
    ("objective", "environment", "what"),
    [
        # What ``accelerate launch --use_fsdp`` gives where no version is named.
        pytest.param("dpo", {}, "--fsdp_version 2", id="the first version"),
        pytest.param(
            "dpo", FSDP | WHOLE, "--fsdp_state_dict_type SHARDED_STATE_DICT", id="in one piece"
        ),
        pytest.param("namc", FSDP | CPU, r"NAMC.*torchrun --nproc-per-node 2 -m", id="NAMC"),
        pytest.param(
            "dpo", FSDP | CPU, "use_fsdp needs several GPUs", id="CPUs", marks=NOT_ON_CPUS
        ),
        pytest.param(
            "dpo", FSDP | {"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed", id="DeepSpeed"
        ),
    ],
)
def test_what_cannot_be_spread(objective, environment, what, monkeypatch):
    for name, value in {"ACCELERATE_USE_FSDP": "true", **environment}.items():
        monkeypatch.setenv(name, value)
    config = config_of(objective)
    with pytest.raises(ConfigError, match=what):
        check_launcher(config, can_shard=objective != "namc" and can_shard(config))
