"""Memory of a training: against the libraries' own models, by hand, and as a run meets it."""

import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.serving import gpu_memory as serving
from pairwright.tasks.training.estimate_memory import (
    ANSWERED,
    Sizes,
    check_memory,
    count_trained,
    demand_of,
)
from pairwright.tasks.training.load_model import prepare_model
from pairwright.tasks.training.score_answers import target_log_probabilities
from tests.fixtures.held_bytes import HeldBytes, faked

PUBLISHED = Path(__file__).parents[2] / "fixtures" / "published"
NAMES = ("qwen2-vl-2b", "qwen2-vl-7b", "qwen2-vl-72b")
TUNINGS = ("lora", "full")


def published(name: str) -> dict[str, Any]:
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def sizes(name: str) -> Sizes:
    found = published(name)
    return Sizes.of(found["config"], found["total_size"])


def settings(tuning: str = "lora", objective: str = "sft", **optimiser: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {"objective": objective, "model": {"tuning": tuning}, "optimiser": optimiser}
    )


def build(name: str, config: TrainConfig, **changes: Any) -> Any:
    """Return transformers' model of a published config, prepared as a run prepares it, without
    memory."""
    from transformers import Qwen2VLConfig
    from transformers import Qwen2VLForConditionalGeneration as Qwen2VL

    kind = torch.float32 if config.model.tuning == "full" else torch.bfloat16
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Qwen2VL._from_config(
            Qwen2VLConfig(**{**published(name)["config"], **changes}), dtype=kind
        )
        return prepare_model(made, config)


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_what_is_trained_of_them_are_those_of_the_models(name: str) -> None:
    for tuning in TUNINGS:
        model, own = build(name, settings(tuning)), sizes(name)
        trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
        count = count_trained(own, settings(tuning))
        if tuning == "lora":
            assert (count, own.whole) == (
                trained,
                sum(one.numel() for one in model.parameters()) - trained,
            )
        else:
            assert count == pytest.approx(trained, rel=1e-4)  # without norms and biases
            assert own.whole == sum(one.numel() for one in model.parameters())


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 600,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


def test_a_share_is_counted_by_hand() -> None:
    own = Sizes.of({"text_config": SMALL}, 1_000_000)
    # Query and output 64 x 64, key and value 64 x 32, the network's three 64 x 96.
    assert (own.whole, own.layer, own.table) == (250_000, 2 * 4096 + 2 * 2048 + 3 * 6144, 38_400)
    assert own.language == 2 * 30_720 + 2 * 38_400
    assert own.adapters(64) == 2 * 64 * (2 * 128 + 2 * 96 + 3 * 160) == 118_784
    lora, full = demand_of(own, settings()), demand_of(own, settings("full"))
    assert (lora.weights, lora.states, lora.gathered, lora.reference) == (
        2 * 250_000 + 4 * 118_784,
        12 * 118_784,
        0,
        0,
    )
    assert (full.weights, full.states) == (4 * 250_000, 12 * 138_240)
    # 4 rows of 512 tokens of images and 512 of text; 26 bytes x 64 and 8 x 96 a layer; then 256
    # answered tokens a row,
    # of 4 bytes for each of 600 words, and 128 MiB.
    words = 4 * 256 * 4 * 600 + (1 << 27)
    assert lora.activations == 4096 * 2 * (26 * 64 + 768) + words
    kept = demand_of(own, settings(gradient_checkpointing=True))
    assert kept.activations == 4096 * 2 * 2 * 64 + words
    many = demand_of(own, settings(per_device_train_batch_size=1000))
    assert many.activations == 1_024_000 * (
        2 * (26 * 64 + 768) + 768
    )  # then a layer's gradients are more
    assert lora.total == 3 * 10**9 + 975_136 + 1_425_408 + lora.activations
    spread = demand_of(own, settings("full"), gpus=4)
    assert (spread.weights, spread.states) == (250_000, 414_720)
    assert spread.gathered == 2 * (2 * 30_720 + 2 * 38_400 + 250_000 - 138_240)
    adpo = demand_of(own, settings("full", "adpo"))
    assert adpo.reference == 2 * 250_000 + 2 * 2 * 38_400  # embeddings stay in float32
    assert (
        demand_of(own, settings("lora", "adpo")).reference
        == demand_of(own, settings("full", "dpo")).reference
        == 0
    )
    twice = demand_of(own, settings(objective="adavip")).activations
    assert twice == 2 * 4096 * 2 * 2432 + 2 * 256 * 4 * 4 * 600 + (1 << 27)
    assert (
        demand_of(own, settings("full", gradient_accumulation_steps=2)).weights
        == 1_000_000 + 2 * 138_240
    )
    in_bits = demand_of(
        own, settings().model_copy(update={"model": ModelConfig(load_in_4bit=True)})
    )
    # Of 2 x 30,720 weights half a byte each, a byte for 64, and 4 bytes for 16,384; one of 64 x 96
    # is whole at a time.
    assert in_bits.weights == 2 * (250_000 - 61_440) + 30_720 + 960 + 15 + 4 * 118_784
    assert in_bits.activations == lora.activations + 2 * 64 * 96
    states = {"adamw_8bit": 6, "paged_adamw_8bit": 4, "lion_32bit": 8, "sgd": 4, "adamw_torch": 12}
    assert {one: demand_of(own, settings(optim=one)).states / 118_784 for one in states} == states
    seeing = {"objective": "sft", "model": {"train_vision": True, "vision_tuning": "full"}}
    beside = demand_of(own, TrainConfig.model_validate(seeing))
    assert beside.weights == 2 * 138_240 + 4 * (118_784 + 111_760)
    assert beside.states == 12 * (118_784 + 111_760)
    with pytest.raises(ValueError, match="vocab_size"):
        Sizes.of({name: value for name, value in SMALL.items() if name != "vocab_size"}, 1)


def measure(name: str, config: TrainConfig, layers: int) -> int:
    """Return the most bytes that a step of four packed rows holds beside the weights."""
    vision = {**published(name)["config"]["vision_config"], "depth": 1}
    model = build(name, config, num_hidden_layers=layers, vision_config=vision).train()
    base = model.get_base_model() if config.model.tuning == "lora" else model
    if config.optimiser.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        faked(model, mode)
        ids, places = (
            torch.zeros(4, 1024, dtype=torch.long),
            torch.zeros(3, 4, 1024, dtype=torch.long),
        )
        answered = torch.arange(4 * ANSWERED)
        with HeldBytes(model) as held:
            with torch.autocast("cpu", torch.bfloat16):
                seen = base.model.language_model.embed_tokens(ids).requires_grad_()
                words = {"position_ids": places, "attention_mask": None, "use_cache": False}
                found = base.model.language_model(inputs_embeds=seen, **words)
                logits = base.lm_head(found.last_hidden_state.reshape(4096, -1)[: len(answered)])
                loss = target_log_probabilities(logits, answered, torch.zeros_like(answered)).sum()
                del seen, found, logits
            loss.backward()
    return held.most


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("name", "tuning"), [(NAMES[1], "full"), (NAMES[0], "lora")])
def test_activations_and_gradients_are_what_pytorch_holds(
    name: str, tuning: str, kept: bool
) -> None:
    config = settings(tuning, gradient_checkpointing=kept)
    own = Sizes.of(
        {**published(name)["config"], "num_hidden_layers": 4}, published(name)["total_size"]
    )
    counted = demand_of(own, config).activations + 4 * count_trained(own, config)
    # In full tuning gradients grow while what was kept goes.
    assert 0.97 < counted / measure(name, config, 4) < {"lora": 1.1, "full": 1.5}[tuning]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Give what makes a machine of GPUs of so many MiB, and returns the folder of a published
    model."""

    def make(name: str, *mebibytes: int) -> Path:
        (tmp_path / "said").write_text(
            "".join(f"{index}, GPU-{index}, {size}\n" for index, size in enumerate(mebibytes))
        )
        monkeypatch.setattr(serving, "ASK", ("cat", str(tmp_path / "said")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        folder, found = tmp_path / name, published(name)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(found["config"]))
        index = {"metadata": {"total_size": found["total_size"]}, "weight_map": {}}
        (folder / serving.INDEX).write_text(json.dumps(index))
        return folder

    return make


def test_memory_estimate_names_settings_that_would_fit(
    machine: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    check_memory(machine("qwen2-vl-7b", 81_559), settings())
    # 28 layers of 26 x 3,584 + 8 x 18,944 bytes for each of 4,096 tokens, and logits of 1,024:
    # 28.07 + 0.76 GB.
    said = (
        "51.0 GB of each GPU (weights 17.2, gradients and optimiser 1.9, activations 28.8, 3 "
        "overhead), of 85.5"
    )
    assert said in caplog.text
    caplog.clear()
    check_memory(machine("qwen2-vl-7b", 46_068), settings())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().partition("Try ")[2] == (
        "--set optimiser.per_device_train_batch_size=2 --set "
        "optimiser.gradient_accumulation_steps=2, or "
        "--set optimiser.gradient_checkpointing=true, or --set model.load_in_4bit=true (with "
        "LoRA), or "
        "--set model.max_pixels=100352"
    )
    caplog.clear()
    check_memory(
        machine("qwen2-vl-7b", 81_559), settings(precision="bf16", gradient_checkpointing=True)
    )
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_what_fits_no_batch_is_refused(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        ConfigError, match=r"the smallest has 85\.5\. Try .*, or --set model\.tuning=lora"
    ):
        check_memory(machine("qwen2-vl-7b", 81_559), settings("full", gradient_checkpointing=True))
    large = machine("qwen2-vl-72b", *[81_559] * 8)
    with pytest.raises(ConfigError, match=r"FSDP \(accelerate launch --use_fsdp\)"):
        check_memory(large, settings())
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", "8")
    check_memory(large, settings(gradient_checkpointing=True))


def test_what_is_not_known_stops_nothing(
    machine: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = machine("qwen2-vl-7b", 100)
    (folder / "config.json").write_text("{}")
    check_memory(folder, settings())
    assert "memory not checked: config.json lacks the sizes" in caplog.text
    machine("qwen2-vl-7b")
    check_memory(folder, settings())
