"""Gradients are where they should be and nowhere else; adapters start as nothing and merge into
what they were."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import NAME, SIZES, WEIGHTS, TrainConfig
from pairwright.tasks.models.differential import find_tower, load_differential
from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.find_model import TUNED, find_model
from pairwright.tasks.training.load_model import (
    computing,
    freeze_model,
    load_model,
    load_processor,
    load_to_train,
    merge_adapters,
    prepare_model,
    restore_beside,
    save_beside,
    trained_beside,
    without_module,
)
from pairwright.tasks.training.pack_answers import pack_answers
from pairwright.tasks.training.save_checkpoints import FOLDER, finish_model
from pairwright.tasks.training.score_answers import score_answers
from tests.fixtures.examples_to_pack import loaded, picture
from tests.fixtures.runs_to_train import move_weights

LANGUAGE = ("model.language_model.", "model.text_model.", "lm_head.")
"""How the names of the language model's weights begin in these families."""


def settings(**model: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {"objective": "dpo", "model": {"lora": {"rank": 4, "alpha": 8}, **model}}
    )


def tuned(folder: Path, config: TrainConfig) -> Any:
    return prepare_model(load_model(folder, config.model, dtype=torch.float32), config)


def score(model: Any, folder: Path) -> torch.Tensor:
    batch = Collator(load_processor(folder), 4096, apart=True)([loaded("a", "A ball.", ("No.",))])[
        "batch"
    ]
    return score_answers(model, pack_answers(batch, model, width=3)).logps


def plain(name: str) -> str:
    """Return a parameter's name without what peft puts around it."""
    return name.removeprefix("base_model.model.").replace(".base_layer", "")


def moved(model: Any, folder: Path) -> set[str]:
    """Return the names of the parameters that get a gradient, those that start at nothing made
    something first."""
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    score(model.train(), folder).sum().backward()
    return {
        name
        for name, one in model.named_parameters(remove_duplicate=False)
        if one.grad is not None and one.grad.any()
    }


def test_full_tuning_trains_the_language_model_alone(family: Path) -> None:
    model = tuned(family, settings(tuning="full"))
    switched = {
        name for name, one in model.named_parameters(remove_duplicate=False) if one.requires_grad
    }
    assert switched == {
        name
        for name, _ in model.named_parameters(remove_duplicate=False)
        if name.startswith(LANGUAGE)
    }
    got = moved(model, family)
    assert got <= switched
    assert {name for name in switched if ".layers." in name and name.endswith("weight")} <= got, (
        "every layer learns"
    )


def test_adapters_are_on_the_linear_layers_of_the_language_model_alone(family: Path) -> None:
    model = tuned(family, settings())
    linear = {
        f"{name}.weight"
        for name, layer in load_model(family, settings().model, dtype=torch.float32).named_modules()
        if isinstance(layer, torch.nn.Linear) and name.startswith(LANGUAGE) and name != "lm_head"
    }
    got = moved(model, family)
    assert all(".lora_A." in name or ".lora_B." in name for name in got)
    assert {plain(name.partition(".lora_")[0]) + ".weight" for name in got} == linear
    assert got == {name for name, one in model.named_parameters() if one.requires_grad}


@pytest.mark.parametrize("tuning", ["lora", "full"])
def test_the_tower_that_sees_is_trained_where_that_is_wanted(family: Path, tuning: str) -> None:
    model = tuned(family, settings(tuning=tuning, train_vision=True))
    seeing = {name for name in moved(model, family) if not plain(name).startswith(LANGUAGE)}
    assert len(seeing) >= 8
    if tuning == "full":
        assert all(one.requires_grad for one in model.parameters())


def test_adapters_start_as_nothing_and_are_the_same_for_the_same_seed(qwen: Path) -> None:
    base = load_model(qwen, settings().model, dtype=torch.float32).eval()
    before = score(base, qwen)
    models = []
    for _ in range(2):
        models.append(tuned(qwen, settings()).eval())
        torch.rand(7)  # whatever was drawn between
    assert torch.equal(score(models[0], qwen), before)
    pairs = zip(models[0].state_dict().items(), models[1].state_dict().items(), strict=True)
    assert all(torch.equal(one, other) for (_, one), (_, other) in pairs)


def test_checkpointing_changes_no_gradient(qwen: Path) -> None:
    """Frozen embeddings give no gradient by themselves, without which recomputed layers would have
    none."""
    grads: list[dict[str, torch.Tensor]] = []
    for checkpointing in (False, True):
        model = tuned(qwen, settings())
        if checkpointing:
            model.activation_checkpointing_enable()
        torch.manual_seed(3)
        names = moved(model, qwen)
        grads.append({name: one.grad for name, one in model.named_parameters() if name in names})
    assert grads[0].keys() == grads[1].keys()
    assert len(grads[0]) > 10
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad)


def test_merging_in_bfloat16_rounds_once(qwen: Path, tmp_path: Path) -> None:
    config = settings()
    model = prepare_model(load_model(qwen, config.model, dtype=torch.bfloat16), config)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.dtype is torch.float32, f"{name}: adapters are kept in float32"
            torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(tmp_path)
    layer = "model.language_model.layers.0.mlp.up_proj"
    stored = load_file(tmp_path / "adapter_model.safetensors")
    a, b = (stored[f"base_model.model.{layer}.lora_{side}.weight"] for side in "AB")
    base = load_model(qwen, config.model, dtype=torch.bfloat16)
    expected = (base.get_submodule(layer).weight.float() + 2 * (b @ a)).to(
        torch.bfloat16
    )  # alpha / rank is 2
    assert torch.equal(merge_adapters(base, tmp_path).get_submodule(layer).weight, expected)


@pytest.fixture
def adapters(qwen: Path, tmp_path: Path) -> Path:
    tuned(qwen, settings()).save_pretrained(tmp_path / "adapters")
    return tmp_path / "adapters"


def test_adapters_alone_are_loaded_with_the_model_that_they_name(
    qwen: Path, adapters: Path
) -> None:
    config = settings()
    found = load_model(adapters, config.model, dtype=torch.float32)
    base = load_model(qwen, config.model, dtype=torch.float32)
    assert all(
        torch.equal(one, base.state_dict()[name]) for name, one in found.state_dict().items()
    )
    assert load_processor(adapters).chat_template == load_processor(qwen).chat_template


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop(min(tensors)), r"lora_A\.default"),
        (lambda tensors: tensors.update(stranger=torch.zeros(2)), "stranger"),
        (lambda tensors: tensors.update({min(tensors): torch.zeros(3, 3)}), "size mismatch"),
    ],
)
def test_adapters_that_do_not_fit_are_refused(adapters: Path, change: Any, words: str) -> None:
    tensors = load_file(adapters / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, adapters / "adapter_model.safetensors")
    with pytest.raises(ModelError, match=words):
        load_model(adapters, settings().model, dtype=torch.float32)


def test_a_frozen_copy_computes_in_bfloat16_what_autocast_does_of_float32(qwen: Path) -> None:
    config = settings()
    whole, frozen = (load_model(qwen, config.model, dtype=torch.float32).eval() for _ in range(2))
    frozen = freeze_model(frozen, torch.bfloat16)
    assert (
        frozen.get_submodule("model.language_model.layers.0.mlp.up_proj").weight.dtype
        is torch.bfloat16
    )
    assert not any(one.requires_grad for one in frozen.parameters())
    with torch.no_grad(), computing(torch.device("cpu"), torch.bfloat16):
        assert torch.equal(score(frozen, qwen), score(whole, qwen))


BESIDE = {"tuning": "lora", "lora": {"rank": 4}, "train_vision": True, "vision_tuning": "full"}
KINDS: dict[str, dict[str, Any]] = {
    "full": {"model": {"tuning": "full", "train_vision": True}},
    "merged": {"model": BESIDE},
    "adapters": {"model": BESIDE, "output": {"merge_adapters": False}},
    "in the tower": {"model": BESIDE | {"vision_tuning": "same"}},
}


def kind_settings(kind: str) -> TrainConfig:
    values = KINDS[kind]
    model = values["model"] | {"differential": {"enabled": True, "weight_per": "layer"}}
    return TrainConfig.model_validate({"objective": "sft", **values, "model": model})


def trained(start: Path, config: TrainConfig) -> Any:
    return move_weights(prepare_model(load_to_train(start, config), config))


@torch.no_grad()
def logits(model: Any, folder: Path) -> torch.Tensor:
    processor = load_processor(folder)
    turn = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What differs?"}]
    text = processor.apply_chat_template(
        [{"role": "user", "content": turn}], add_generation_prompt=True
    )
    pair = [picture(56, 84, seed=seed) for seed in (1, 2)]
    return model(**processor(text=[text], images=[pair], return_tensors="pt")).logits


@pytest.mark.parametrize("kind", ["full", "merged", "in the tower"])
def test_a_training_begins_with_the_model_as_it_was(start: Path, kind: str) -> None:
    """Loaded, with a new module and what is trained switched on, it says what the model says."""
    config = kind_settings(kind)
    begun = prepare_model(load_to_train(start, config), config).eval()
    plain = load_model(start, config.model, dtype=torch.float32).eval()
    assert torch.equal(logits(begun, start), logits(plain, start))


def test_beside_adapters_all_that_sees_is_trained(start: Path) -> None:
    config = kind_settings("merged")
    precise = config.optimiser.model_copy(update={"precision": "bf16"})
    model = prepare_model(
        load_to_train(start, config.model_copy(update={"optimiser": precise})), config
    )
    base = model.get_base_model()
    tower, inner = find_tower(base), base.model
    seeing = [tower.whole, tower.after, getattr(base, NAME)]
    wanted = {id(weight) for module in seeing for weight in module.parameters()}
    other = {
        id(weight) for name, weight in base.named_parameters() if name == "model.image_newline"
    }
    found = {id(weight): name for name, weight in base.named_parameters() if weight.requires_grad}
    assert wanted <= found.keys()
    adapters = [name for key, name in found.items() if key not in wanted | other]
    assert adapters
    assert all(".lora_" in name and "language_model" in name for name in adapters)
    assert {weight.dtype for weight in base.parameters() if weight.requires_grad} == {torch.float32}
    assert inner.language_model.layers[0].mlp.down_proj.base_layer.weight.dtype == torch.bfloat16
    assert trained_beside(model).keys() == {found[key] for key in wanted | other}


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_model_is_loaded_as_it_was_trained(
    start: Path, kind: str, tmp_path: Path
) -> None:
    if kind in ("full", "adapters") and "llava" in start.name:
        pytest.skip("the family makes no difference to these")
    config = kind_settings(kind)
    model = trained(start, config)
    save(model, start, tmp_path)
    finish_model(tmp_path, start, config)
    expected = logits(
        model.double(), start
    )  # weights are rounded where adapters are merged; no other rounding
    again = load_model(tmp_path, config.model, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(again.double(), start), expected, rtol=5e-5, atol=5e-5)
    assert getattr(again, NAME).sizes.weight_per == "layer"
    assert (tmp_path / SIZES).exists()
    assert (tmp_path / TUNED).exists() == (kind == "adapters")
    revision = find_model(str(tmp_path)).revision
    if kind != "adapters":
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            tmp_path, output_loading_info=True
        )
        plain, report = loaded
        assert not any(
            report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys")
        )
        assert load_differential(plain.eval(), tmp_path)
        torch.testing.assert_close(logits(plain.double(), start), expected, rtol=5e-5, atol=5e-5)
    if kind in ("merged", "in the tower"):
        beside = load_model(tmp_path / FOLDER, config.model, dtype=torch.float32).eval()
        torch.testing.assert_close(logits(beside.double(), start), expected, rtol=5e-5, atol=5e-5)
    moved = load_file(tmp_path / WEIGHTS)
    save_file({name: weight + 1 for name, weight in moved.items()}, tmp_path / WEIGHTS)
    assert find_model(str(tmp_path)).revision != revision


def save(model: Any, start: Path, folder: Path) -> None:
    """Save it as a finished training does."""
    if hasattr(model, "get_base_model"):
        model.save_pretrained(folder)
    else:
        model.save_pretrained(folder, state_dict=without_module(model.state_dict()))
    load_processor(start).save_pretrained(folder)
    save_beside(model, folder, finished=True)


def test_what_belongs_to_another_model_is_refused(start: Path, tmp_path: Path) -> None:
    config = kind_settings("adapters")
    model = trained(start, config)
    save_beside(model, tmp_path, finished=False)
    whole = load_file(tmp_path / TUNED)
    name = min(whole)
    before = trained_beside(model)[name].clone()
    restore_beside(model, tmp_path)
    assert torch.equal(trained_beside(model)[name], before)
    for broken, why in (
        ({"strange": whole[name]}, "strange"),
        ({name: whole[name][..., None]}, name),
    ):
        save_file(broken, tmp_path / TUNED)
        with pytest.raises(ModelError, match=why):
            restore_beside(model, tmp_path)
    (tmp_path / TUNED).unlink()
    with pytest.raises(ModelError, match=TUNED):
        restore_beside(model, tmp_path)
