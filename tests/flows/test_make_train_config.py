"""Which settings a training has where a user says nothing, and which do not go together."""

import pytest

from pairwright.flows.make_train_config import make_config
from pairwright.flows.prepare_namc import namc_defaults
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig


def test_namc_has_its_published_schedules() -> None:
    """Paper 001, Appendix F; 512 and 128 rows to a step."""
    first, tuned = (make_config("namc", ["namc.size=paper"], start=start) for start in ("", "namc"))
    assert (first.optimiser.learning_rate, first.optimiser.num_train_epochs, first.namc.relevance) == (
        3e-4,
        20,
        "start",
    )
    said = (tuned.optimiser.learning_rate, tuned.namc.noise_enabled, tuned.namc.max_new_tokens, tuned.namc.num_beams)
    assert said == (2e-4, False, 23, 1)
    steps = [
        one.optimiser.per_device_train_batch_size * one.optimiser.gradient_accumulation_steps for one in (first, tuned)
    ]
    assert steps == [512, 128]
    assert namc_defaults("small", starts=False)["namc.noise_enabled"]


def test_differential_perception_has_the_papers_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Table 10, on four devices; the stand-ins keep their own."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    asked = ["model.differential.enabled=true", "optimiser.per_device_train_batch_size=8"]
    config = make_config("sft", asked, model="some/model")
    model, optimiser = config.model, config.optimiser
    assert (model.lora.rank, model.lora.alpha, model.tuning, model.vision_tuning) == (128, 256, "lora", "full")
    assert (optimiser.learning_rate, optimiser.vision_learning_rate, optimiser.num_train_epochs) == (1e-5, 2e-6, 1)
    assert 4 * optimiser.per_device_train_batch_size * optimiser.gradient_accumulation_steps == 256
    assert model.train_vision
    assert (
        make_config(
            "sft", [*asked, "optimiser.gradient_accumulation_steps=1"], model="some/model"
        ).optimiser.gradient_accumulation_steps
        == 1
    )
    blind = make_config("sft", [*asked, "model.train_vision=false"], model="some/model")
    assert (blind.optimiser.learning_rate, blind.optimiser.vision_learning_rate) == (1e-5, 0.0)
    small = make_config("sft", asked)
    assert (small.model.tuning, small.optimiser.vision_learning_rate, small.output.write_answers) == ("full", 0.0, True)
    assert make_config("sft", [], model="some/model") == TrainConfig.model_validate(
        {"objective": "sft", "model": {"name": "some/model"}}
    )


@pytest.mark.parametrize(
    ("objective", "settings", "why"),
    [
        ("dpo", ["model.differential.enabled=true"], "objective sft"),
        ("namc", ["model.differential.enabled=true"], "^--differential: "),
        ("adavip", ["model.tuning=lora", "model.vision_tuning=full"], "LoRA .*objective sft"),
        ("sft", ["model.train_vision=false", "optimiser.vision_learning_rate=1e-6"], "model.train_vision"),
        ("sft", ["model.differential.depth=9"], "model.differential.depth"),
    ],
)
def test_what_does_not_go_together_is_refused(objective: str, settings: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_config(objective, settings)
