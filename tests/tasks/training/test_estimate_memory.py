"""Memory of a training: against the libraries' own models, by hand, and as a run meets it."""

import json
import logging
import warnings
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Qwen2VLConfig
from transformers import Qwen2VLForConditionalGeneration as Qwen2VL

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving import gpu_memory
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


def published(name):
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def sizes(name, **changes):
    about = published(name)
    return Sizes.from_published({**about["config"], **changes}, about["total_size"])


def settings(tuning="lora", objective="sft", model=None, **optimiser):
    model = {"tuning": tuning, **(model or {})}
    return TrainConfig.model_validate(
        {"objective": objective, "model": model, "optimiser": optimiser}
    )


def build(name, config, **changes):
    """Return transformers' model of a published config, prepared for a run, without memory."""
    kind = torch.float32 if config.model.tuning == "full" else torch.bfloat16
    described = Qwen2VLConfig(**{**published(name)["config"], **changes})
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare_model(Qwen2VL._from_config(described, dtype=kind), config)


def count(weights):
    return sum(weight.numel() for weight in weights)


@pytest.mark.parametrize("name", NAMES)
def test_adapters_and_the_model_have_as_many_weights(name):
    model = build(name, settings())
    trained = count(each for each in model.parameters() if each.requires_grad)
    assert count_trained(sizes(name), settings()) == trained
    assert sizes(name).whole == count(model.parameters()) - trained


@pytest.mark.parametrize("name", NAMES)
def test_full_tuning_trains_as_many_weights(name):
    model = build(name, settings("full"))
    trained = count(each for each in model.parameters() if each.requires_grad)
    without_norms_and_biases = count_trained(sizes(name), settings("full"))
    assert without_norms_and_biases == pytest.approx(trained, rel=1e-4)
    assert sizes(name).whole == count(model.parameters())


SMALL = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 600, "tie_word_embeddings": False,
    "torch_dtype": "float32",
}  # fmt: skip
OWN = Sizes.from_published({"text_config": SMALL}, 1_000_000)
ADAPTERS, LANGUAGE, TOWER = 118_784, 138_240, 111_760
# 4 rows of 256 answered tokens, of 4 bytes for each of 600 words, and 128 MiB.
LOGITS = 4 * 256 * 4 * 600
CONSTANT = 1 << 27
# 4 rows of 512 tokens of images and 512 of text, in 2 layers; 26 bytes x 64 and 8 x 96 a layer.
LAYERS = 4096 * 2 * (26 * 64 + 768)
IN_BITS = {"load_in_4bit": True}
SEEING = {"train_vision": True, "vision_tuning": "full"}


def test_sizes_are_counted_by_hand():
    # Query and output 64 x 64, key and value 64 x 32, the network's three 64 x 96.
    assert (OWN.whole, OWN.layer, OWN.embedding_weights) == (
        250_000,
        2 * 4096 + 2 * 2048 + 3 * 6144,
        38_400,
    )
    assert OWN.language == 2 * 30_720 + 2 * 38_400 == LANGUAGE
    assert OWN.adapters(64) == 2 * 64 * (2 * 128 + 2 * 96 + 3 * 160) == ADAPTERS
    with pytest.raises(ValueError, match="vocab_size"):
        Sizes.from_published(
            {name: value for name, value in SMALL.items() if name != "vocab_size"}, 1
        )


ACTIVATIONS = LAYERS + LOGITS + CONSTANT
# Of 2 x 30,720 weights half a byte each, a byte for 64, and 4 bytes for 16,384; one of 64 x 96 is
# whole at a time.
FOUR_BITS = 2 * (250_000 - 61_440) + 30_720 + 960 + 15 + 4 * ADAPTERS


@pytest.mark.parametrize(
    ("config", "part", "size"),
    [
        (settings(), "weights", 2 * 250_000 + 4 * ADAPTERS),
        (settings(), "states", 12 * ADAPTERS),
        (settings(), "gathered", 0),
        (settings(), "reference", 0),
        (settings(), "activations", ACTIVATIONS),
        (settings(), "total", 3 * 10**9 + 975_136 + 1_425_408 + ACTIVATIONS),
        (settings("full"), "weights", 4 * 250_000),
        (settings("full"), "states", 12 * LANGUAGE),
        (settings("full", gradient_accumulation_steps=2), "weights", 1_000_000 + 2 * LANGUAGE),
        (settings("full", "dpo"), "reference", 0),
        (settings("lora", "adpo"), "reference", 0),
        # Embeddings stay in float32.
        (settings("full", "adpo"), "reference", 2 * 250_000 + 2 * 2 * 38_400),
        (settings("lora", "adavip"), "activations", 2 * LAYERS + 2 * LOGITS + CONSTANT),
        (settings(gradient_checkpointing=True), "activations", 4096 * 256 + LOGITS + CONSTANT),
        # Here a layer's gradients are more than the logits.
        (settings(per_device_train_batch_size=1000), "activations", 250 * (LAYERS + 4096 * 768)),
        (settings(model=IN_BITS), "weights", FOUR_BITS),
        (settings(model=IN_BITS), "activations", ACTIVATIONS + 2 * 64 * 96),
        (settings(model=SEEING), "weights", 2 * LANGUAGE + 4 * (ADAPTERS + TOWER)),
        (settings(model=SEEING), "states", 12 * (ADAPTERS + TOWER)),
        (settings(optim="adamw_8bit"), "states", 6 * ADAPTERS),
        (settings(optim="paged_adamw_8bit"), "states", 4 * ADAPTERS),
        (settings(optim="lion_32bit"), "states", 8 * ADAPTERS),
        (settings(optim="sgd"), "states", 4 * ADAPTERS),
        (settings(optim="adamw_torch"), "states", 12 * ADAPTERS),
    ],
)
def test_a_share_is_counted_by_hand(config, part, size):
    assert getattr(demand_of(OWN, config), part) == size


def test_a_share_of_four_gpus_is_counted_by_hand():
    spread = demand_of(OWN, settings("full"), gpus=4)
    assert (spread.weights, spread.states) == (250_000, 414_720)
    assert spread.gathered == 2 * (2 * 30_720 + 2 * 38_400 + 250_000 - LANGUAGE)


def measure(name, config, layers):
    """Return the most bytes that a step of four packed rows holds beside the weights."""
    vision = {**published(name)["config"]["vision_config"], "depth": 1}
    model = build(name, config, num_hidden_layers=layers, vision_config=vision).train()
    base = model.get_base_model() if config.model.tuning == "lora" else model
    if config.optimiser.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        faked(model, mode)
        ids = torch.zeros(4, 1024, dtype=torch.long)
        arguments = {"position_ids": torch.zeros(3, 4, 1024, dtype=torch.long)}
        arguments |= {"attention_mask": None, "use_cache": False}
        answered = torch.arange(4 * ANSWERED)
        with HeldBytes(model) as held:
            with torch.autocast("cpu", torch.bfloat16):
                embedded = base.model.language_model.embed_tokens(ids).requires_grad_()
                states = base.model.language_model(inputs_embeds=embedded, **arguments)
                logits = base.lm_head(states.last_hidden_state.reshape(4096, -1)[: len(answered)])
                loss = target_log_probabilities(logits, answered, torch.zeros_like(answered)).sum()
                del embedded, states, logits
            loss.backward()
    return held.most


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("name", "tuning", "most"), [(NAMES[1], "full", 1.5), (NAMES[0], "lora", 1.1)]
)
def test_activations_and_gradients_are_what_pytorch_holds(name, tuning, most, kept):
    """In full tuning gradients grow while what was kept goes."""
    config = settings(tuning, gradient_checkpointing=kept)
    own = sizes(name, num_hidden_layers=4)
    counted = demand_of(own, config).activations + 4 * count_trained(own, config)
    assert 0.97 < counted / measure(name, config, 4) < most


@pytest.fixture
def machine(tmp_path, monkeypatch, caplog):
    """Give what makes a machine of GPUs of so many MiB, and returns a published model's folder."""

    def make(name, *mebibytes):
        lines = [f"{index}, GPU-{index}, {size}\n" for index, size in enumerate(mebibytes)]
        (tmp_path / "said").write_text("".join(lines))
        monkeypatch.setattr(gpu_memory, "ASK", ("cat", str(tmp_path / "said")))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        folder, about = tmp_path / name, published(name)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(about["config"]))
        index = {"metadata": {"total_size": about["total_size"]}, "weight_map": {}}
        (folder / gpu_memory.INDEX).write_text(json.dumps(index))
        return folder

    caplog.set_level(logging.INFO)
    return make


def test_the_estimate_is_in_the_log(machine, caplog):
    check_memory(machine("qwen2-vl-7b", 81_559), settings())
    # 28 layers of 26 x 3,584 + 8 x 18,944 bytes for each of 4,096 tokens, and logits of 1,024:
    # 28.07 + 0.76 GB.
    parts = "weights 17.2, gradients and optimiser 1.9, activations 28.8, 3 overhead"
    assert f"51.0 GB of each GPU ({parts}), of 85.5" in caplog.text


def test_a_batch_that_does_not_fit_names_settings_that_would(machine, caplog):
    check_memory(machine("qwen2-vl-7b", 46_068), settings())
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().partition("Try ")[2].split(", or ") == [
        "--set optimiser.per_device_train_batch_size=2 "
        "--set optimiser.gradient_accumulation_steps=2",
        "--set optimiser.gradient_checkpointing=true",
        "--set model.load_in_4bit=true (with LoRA)",
        "--set model.max_pixels=100352",
    ]


def test_what_fits_is_no_warning(machine, caplog):
    config = settings(precision="bf16", gradient_checkpointing=True)
    check_memory(machine("qwen2-vl-7b", 81_559), config)
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_what_fits_no_batch_is_refused(machine):
    config = settings("full", gradient_checkpointing=True)
    with pytest.raises(ConfigError, match=r"smallest has 85\.5\. Try .*--set model\.tuning=lora"):
        check_memory(machine("qwen2-vl-7b", 81_559), config)


def test_a_model_for_several_gpus_needs_fsdp(machine, monkeypatch):
    large = machine("qwen2-vl-72b", *[81_559] * 8)
    with pytest.raises(ConfigError, match=r"FSDP \(accelerate launch --use_fsdp\)"):
        check_memory(large, settings())
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", "8")
    check_memory(large, settings(gradient_checkpointing=True))


@pytest.mark.parametrize(
    ("gpus", "config", "logged"),
    [([100], "{}", "memory not checked: config.json lacks the sizes"), ([], "{}", "")],
)
def test_what_is_not_known_stops_nothing(gpus, config, logged, machine, caplog):
    folder = machine("qwen2-vl-7b", *gpus)
    (folder / "config.json").write_text(config)
    check_memory(folder, settings())
    assert logged in caplog.text
