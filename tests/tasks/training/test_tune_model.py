"""Gradients are where they should be and nowhere else; adapters start as nothing and merge into
what they were."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import NAME, SIZES, WEIGHTS, TrainConfig
from pairwright.tasks.models.differential import find_tower, load_differential
from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.find_model import TUNED, find_model
from pairwright.tasks.training.load_model import (
    computing,
    extra_weights,
    freeze_model,
    load_model,
    load_processor,
    load_to_train,
    merge_adapters,
    prepare_model,
    restore_extra_weights,
    save_extra_weights,
    without_module,
)
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.save_checkpoints import FOLDER, finish_model
from pairwright.tasks.training.score_answers import score_answers
from tests.fixtures.examples_to_pack import loaded, picture
from tests.fixtures.runs_to_train import move_weights

LANGUAGE = ("model.language_model.", "model.text_model.", "lm_head.")
"""How the names of the language model's weights begin in these families."""


def settings(**model):
    model = {"lora": {"rank": 4, "alpha": 8}, **model}
    return TrainConfig.model_validate({"objective": "dpo", "model": model})


def load(folder, config, dtype=torch.float32):
    return load_model(folder, config.model, dtype=dtype)


def tuned(folder, config, dtype=torch.float32):
    return prepare_model(load(folder, config, dtype), config)


def score(model, folder):
    collator = Collator(load_processor(folder), 4096, apart=True)
    batch = collator([loaded("a", "A ball.", ("No.",))])["batch"]
    return score_answers(model, pack_answers(batch, model, width=3)).logps


def weights_of(model):
    return model.named_parameters(remove_duplicate=False)


def plain(name):
    """Return a parameter's name without what peft puts around it."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def moved(model, folder):
    """Return the names of the parameters that get a gradient; those that start at nothing are made
    something first."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    score(model.train(), folder).sum().backward()
    return {name for name, item in weights_of(model) if item.grad is not None and item.grad.any()}


def test_full_tuning_trains_the_language_model_alone(family):
    model = tuned(family, settings(tuning="full"))
    switched = {name for name, item in weights_of(model) if item.requires_grad}
    assert switched == {name for name, _ in weights_of(model) if name.startswith(LANGUAGE)}
    layers = {name for name in switched if ".layers." in name and name.endswith("weight")}
    assert layers <= moved(model, family) <= switched


def test_adapters_are_on_the_linear_layers_of_the_language_model(family):
    linear = {
        f"{name}.weight"
        for name, layer in load(family, settings()).named_modules()
        if isinstance(layer, torch.nn.Linear) and name.startswith(LANGUAGE) and name != "lm_head"
    }
    model = tuned(family, settings())
    names = moved(model, family)
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert {plain(name.partition(".lora_")[0]) + ".weight" for name in names} == linear
    assert names == {name for name, item in model.named_parameters() if item.requires_grad}


@pytest.mark.parametrize(("tuning", "everything"), [("lora", False), ("full", True)])
def test_the_tower_is_trained_where_that_is_wanted(family, tuning, everything):
    model = tuned(family, settings(tuning=tuning, train_vision=True))
    tower = {name for name in moved(model, family) if not plain(name).startswith(LANGUAGE)}
    assert len(tower) >= 8
    assert all(item.requires_grad for item in model.parameters()) == everything


def test_adapters_go_to_named_layers_with_their_ranks(qwen):
    lora = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "layers.1.mlp.up_proj"]}
    model = tuned(qwen, settings(lora={**lora, "rank_pattern": {"up_proj": 2}}))
    adapters = {
        plain(name.partition(".lora_A")[0]): len(weight)
        for name, weight in model.named_parameters()
        if ".lora_A." in name
    }
    layers = "model.language_model.layers"
    assert adapters == {
        f"{layers}.0.self_attn.q_proj": 4,
        f"{layers}.1.self_attn.q_proj": 4,
        f"{layers}.1.mlp.up_proj": 2,
    }


@pytest.mark.parametrize("field", ["target_modules", "modules_to_save", "rank_pattern"])
def test_a_layer_that_is_none_is_named_with_those_that_are(field, qwen):
    names = {"q_prj": 2} if field == "rank_pattern" else ["q_prj"]
    with pytest.raises(ConfigError, match=rf"lora\.{field}: .*'q_prj'.* q_proj"):
        tuned(qwen, settings(lora={field: names}))


def test_modules_beside_the_adapters_are_trained_saved_and_merged(qwen, tmp_path):
    lora = {"rank": 4, "alpha": 8, "modules_to_save": ["embed_tokens", "lm_head"]}
    config = settings(lora=lora)
    model = tuned(qwen, config, torch.bfloat16)
    saved = [weight for name, weight in model.named_parameters() if "modules_to_save" in name]
    assert len(saved) == 2
    assert {(weight.dtype, weight.requires_grad) for weight in saved} == {(torch.float32, True)}
    base = load(qwen, config, torch.bfloat16).eval()
    move_weights(model)
    with torch.no_grad(), model.disable_adapter(), computing(model.device, torch.bfloat16):
        without = score(model, qwen)
    with torch.no_grad(), computing(model.device, torch.bfloat16):
        assert torch.equal(without, score(base, qwen)), "the reference has neither"
    model.save_pretrained(tmp_path)
    save_extra_weights(model, tmp_path, finished=True)
    merged = merge_adapters(load(qwen, config, torch.bfloat16), tmp_path)
    embeddings = merged.get_input_embeddings().weight
    assert embeddings.dtype == torch.bfloat16
    assert not torch.equal(embeddings, base.get_input_embeddings().weight)
    assert torch.equal(embeddings.float(), saved[0].to(torch.bfloat16).float())


def test_the_projector_is_trained_alone(family):
    model = tuned(family, settings(tuning="projector"), torch.bfloat16)
    switched = {name: item for name, item in weights_of(model) if item.requires_grad}
    assert switched
    assert all("merger" in name or "connector" in name or "projector" in name for name in switched)
    assert not any(name.startswith(LANGUAGE) for name in switched)
    assert {item.dtype for item in switched.values()} == {torch.float32}
    plain_model = tuned(family, settings(tuning="projector"))
    assert moved(plain_model, family) <= set(switched)


def test_adapters_start_as_nothing_and_by_their_seed(qwen):
    first = tuned(qwen, settings()).eval()
    torch.rand(7)
    second = tuned(qwen, settings()).eval()
    assert torch.equal(score(first, qwen), score(load(qwen, settings()).eval(), qwen))
    weights = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    assert all(torch.equal(item, other) for (_, item), (_, other) in weights)


def test_checkpointing_changes_no_gradient(qwen):
    """Frozen embeddings give no gradient, without which recomputed layers would have none."""
    plain_model, model = (tuned(qwen, settings()) for _ in range(2))
    model.activation_checkpointing_enable()
    gradients = []
    for each in (plain_model, model):
        torch.manual_seed(3)
        names = moved(each, qwen)
        gradients.append(
            {name: item.grad for name, item in each.named_parameters() if name in names}
        )
    assert len(gradients[0]) > 10
    torch.testing.assert_close(*gradients)


def test_merging_in_bfloat16_rounds_once(qwen, tmp_path):
    config = settings()
    model = tuned(qwen, config, torch.bfloat16)
    adapters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert {parameter.dtype for parameter in adapters} == {torch.float32}
    for parameter in adapters:
        torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(tmp_path)
    layer = "model.language_model.layers.0.mlp.up_proj"
    stored = load_file(tmp_path / "adapter_model.safetensors")
    a, b = (stored[f"base_model.model.{layer}.lora_{side}.weight"] for side in "AB")
    base = load(qwen, config, torch.bfloat16)
    added = 2 * (b @ a)  # alpha / rank is 2
    expected = (base.get_submodule(layer).weight.float() + added).to(torch.bfloat16)
    assert torch.equal(merge_adapters(base, tmp_path).get_submodule(layer).weight, expected)


@pytest.fixture
def adapters(qwen, tmp_path):
    tuned(qwen, settings()).save_pretrained(tmp_path / "adapters")
    return tmp_path / "adapters"


def test_adapters_alone_are_loaded_with_the_model_that_they_name(qwen, adapters):
    model, base = load(adapters, settings()).state_dict(), load(qwen, settings()).state_dict()
    assert model.keys() <= base.keys()
    assert all(torch.equal(weight, base[name]) for name, weight in model.items())
    assert load_processor(adapters).chat_template == load_processor(qwen).chat_template


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda tensors: tensors.pop(min(tensors)), r"lora_A\.default"),
        (lambda tensors: tensors.update(stranger=torch.zeros(2)), "stranger"),
        (lambda tensors: tensors.update({min(tensors): torch.zeros(3, 3)}), "size mismatch"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(adapters, change, what):
    tensors = load_file(adapters / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, adapters / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=what):
        load(adapters, settings())


def test_a_frozen_copy_computes_in_bfloat16_what_autocast_does(qwen):
    whole, copy = (load(qwen, settings()).eval() for _ in range(2))
    frozen = freeze_model(copy, torch.bfloat16)
    layer = frozen.get_submodule("model.language_model.layers.0.mlp.up_proj")
    assert layer.weight.dtype is torch.bfloat16
    assert not any(item.requires_grad for item in frozen.parameters())
    with torch.no_grad(), computing(torch.device("cpu"), torch.bfloat16):
        assert torch.equal(score(frozen, qwen), score(whole, qwen))


BESIDE = {"tuning": "lora", "lora": {"rank": 4}, "train_vision": True, "vision_tuning": "full"}
MODELS = {
    "full": {"tuning": "full", "train_vision": True},
    "merged": BESIDE,
    "adapters": BESIDE,
    "in the tower": BESIDE | {"vision_tuning": "same"},
}
BOTH = ("qwen2_vl", "llava_onevision")


def differential(kind, precision="auto"):
    module = {"differential": {"enabled": True, "weight_per": "layer"}}
    output, optimiser = {"merge_adapters": kind != "adapters"}, {"precision": precision}
    sections = {"model": MODELS[kind] | module, "output": output, "optimiser": optimiser}
    return TrainConfig.model_validate({"objective": "sft", **sections})


def to_train(start, config):
    return prepare_model(load_to_train(start, config), config)


@torch.no_grad()
def logits(model, folder):
    processor = load_processor(folder)
    turn = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What differs?"}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": turn}], add_generation_prompt=True
    )
    pair = [picture(56, 84, seed=seed) for seed in (1, 2)]
    return model(**processor(text=[text], images=[pair], return_tensors="pt")).logits


def assert_same_logits(model, folder, expected):
    torch.testing.assert_close(logits(model.double(), folder), expected, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("kind", ["full", "merged", "in the tower"])
def test_a_training_begins_with_the_model_as_it_was(start, kind):
    """With a new module and what is trained switched on, it says what the model says."""
    config = differential(kind)
    begun, before = to_train(start, config).eval(), load(start, config).eval()
    assert torch.equal(logits(begun, start), logits(before, start))


def test_beside_adapters_all_that_sees_is_trained(start):
    model = to_train(start, differential("merged", precision="bf16"))
    base = model.get_base_model()
    tower = find_tower(base)
    modules = [tower.whole, tower.after, getattr(base, NAME)]
    seeing = {id(weight) for module in modules for weight in module.parameters()}
    newline = {id(item) for name, item in base.named_parameters() if name == "model.image_newline"}
    trained = {id(item): name for name, item in base.named_parameters() if item.requires_grad}
    assert seeing <= trained.keys()
    adapters = [name for key, name in trained.items() if key not in seeing | newline]
    assert adapters
    assert all(".lora_" in name and "language_model" in name for name in adapters)
    assert {weight.dtype for weight in base.parameters() if weight.requires_grad} == {torch.float32}
    layer = base.model.language_model.layers[0].mlp.down_proj.base_layer
    assert layer.weight.dtype == torch.bfloat16
    assert extra_weights(model).keys() == {trained[key] for key in seeing | newline}


def save(model, start, folder):
    """Save it as a finished training does."""
    adapted = hasattr(model, "get_base_model")
    weights = {} if adapted else {"state_dict": without_module(model.state_dict())}
    model.save_pretrained(folder, **weights)
    load_processor(start).save_pretrained(folder)
    save_extra_weights(model, folder, finished=True)


@pytest.fixture
def trained(request, checkpoint, tmp_path):
    """Return a kind, its start, a trained model's logits and the folder where it was finished."""
    kind, family = request.param
    start, config = checkpoint(family), differential(kind)
    model = move_weights(to_train(start, config))
    save(model, start, tmp_path)
    finish_model(tmp_path, start, config)
    # Weights are rounded where adapters are merged; there is no other rounding.
    return kind, start, logits(model.double(), start), tmp_path


KINDS = [("full", BOTH[0]), ("adapters", BOTH[0])]
MERGED = [(kind, family) for kind in ("merged", "in the tower") for family in BOTH]


@pytest.mark.parametrize("trained", KINDS + MERGED, indirect=True, ids=" of ".join)
def test_a_finished_model_is_loaded_as_it_was_trained(trained):
    kind, start, expected, folder = trained
    model = load(folder, differential(kind)).eval()
    assert_same_logits(model, start, expected)
    assert getattr(model, NAME).sizes.weight_per == "layer"
    assert (folder / SIZES).exists()
    assert (folder / TUNED).exists() == (kind == "adapters")
    revision = find_model(str(folder)).revision
    module = load_file(folder / WEIGHTS)
    save_file({name: weight + 1 for name, weight in module.items()}, folder / WEIGHTS)
    assert find_model(str(folder)).revision != revision


@pytest.mark.parametrize("trained", KINDS[:1] + MERGED, indirect=True, ids=" of ".join)
def test_transformers_loads_a_finished_model_without_its_module(trained):
    _, start, expected, folder = trained
    model, report = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not any(report[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched"))
    assert load_differential(model.eval(), folder)
    assert_same_logits(model, start, expected)


@pytest.mark.parametrize("trained", MERGED, indirect=True, ids=" of ".join)
def test_the_adapters_beside_a_merged_model_are_the_same_model(trained):
    kind, start, expected, folder = trained
    assert_same_logits(load(folder / FOLDER, differential(kind)).eval(), start, expected)


def test_what_belongs_to_another_model_is_refused(start, tmp_path):
    model = move_weights(to_train(start, differential("adapters")))
    save_extra_weights(model, tmp_path, finished=False)
    tensors = load_file(tmp_path / TUNED)
    name = min(tensors)
    before = extra_weights(model)[name].clone()
    restore_extra_weights(model, tmp_path)
    assert torch.equal(extra_weights(model)[name], before)
    for broken, what in (("strange", tensors[name]), (name, tensors[name][..., None])):
        save_file({broken: what}, tmp_path / TUNED)
        with pytest.raises(ModelError, match=broken):
            restore_extra_weights(model, tmp_path)
    (tmp_path / TUNED).unlink()
    with pytest.raises(ModelError, match=TUNED):
        restore_extra_weights(model, tmp_path)
