"""What is trained beside adapters is what is written, and comes back; differential perception with it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

from pairwright.schemas.differential import NAME, SIZES, WEIGHTS
from pairwright.schemas.errors import ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.differential.attach import find_tower, load_differential
from pairwright.tasks.training.answer_rows import answer_rows
from pairwright.tasks.training.collate import load_example
from pairwright.tasks.training.examples import make_example
from pairwright.tasks.training.find_model import TUNED, find_model
from pairwright.tasks.training.load_model import load_model, load_processor, load_to_train
from pairwright.tasks.training.losses.objectives import needs_of
from pairwright.tasks.training.save_model import FOLDER, finish_model
from pairwright.tasks.training.tune_model import prepare_model
from pairwright.tasks.training.tuned_weights import restore_beside, save_beside, trained_beside, without_module
from tests.fixtures.examples_to_pack import picture
from tests.fixtures.families_of_models import PACKED
from tests.fixtures.preferences_to_train import preference

BESIDE = {"tuning": "lora", "lora": {"rank": 4}, "train_vision": True, "vision_tuning": "full"}
KINDS: dict[str, dict[str, Any]] = {
    "full": {"model": {"tuning": "full", "train_vision": True}},
    "merged": {"model": BESIDE},
    "adapters": {"model": BESIDE, "output": {"merge_adapters": False}},
    "in the tower": {"model": BESIDE | {"vision_tuning": "same"}},
}


@pytest.fixture(scope="module", params=["qwen2_vl", "llava_onevision"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PACKED[request.param](tmp_path_factory.mktemp("families") / request.param)


def settings(kind: str) -> TrainConfig:
    values = KINDS[kind]
    model = values["model"] | {"differential": {"enabled": True, "weight_per": "layer"}}
    return TrainConfig.model_validate({"objective": "sft", **values, "model": model})


def trained(start: Path, config: TrainConfig) -> Any:
    """Return a model as a training leaves it: its trained weights moved."""
    model = prepare_model(load_to_train(start, config), config)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


@torch.no_grad()
def logits(model: Any, folder: Path) -> torch.Tensor:
    processor = load_processor(folder)
    turn = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What differs?"}]
    text = processor.apply_chat_template([{"role": "user", "content": turn}], add_generation_prompt=True)
    pair = [picture(56, 84, seed=seed) for seed in (1, 2)]
    return model(**processor(text=[text], images=[pair], return_tensors="pt")).logits


@pytest.mark.parametrize("kind", ["full", "merged", "in the tower"])
def test_a_training_begins_with_the_model_as_it_was(start: Path, kind: str) -> None:
    """Loaded, with a new module and what is trained switched on, it says what the model says."""
    config = settings(kind)
    begun = prepare_model(load_to_train(start, config), config).eval()
    plain = load_model(start, config.model, dtype=torch.float32).eval()
    assert torch.equal(logits(begun, start), logits(plain, start))


def test_beside_adapters_all_that_sees_is_trained(start: Path) -> None:
    config = settings("merged")
    model = prepare_model(load_model_in_half(start, config), config)
    base = model.get_base_model()
    tower, inner = find_tower(base), base.model
    seeing = [tower.whole, tower.after, getattr(base, NAME)]
    wanted = {id(weight) for module in seeing for weight in module.parameters()}
    other = {id(weight) for name, weight in base.named_parameters() if name == "model.image_newline"}
    found = {id(weight): name for name, weight in base.named_parameters() if weight.requires_grad}
    assert wanted <= found.keys()
    adapters = [name for key, name in found.items() if key not in wanted | other]
    assert adapters
    assert all(".lora_" in name and "language_model" in name for name in adapters)
    assert {weight.dtype for weight in base.parameters() if weight.requires_grad} == {torch.float32}
    assert inner.language_model.layers[0].mlp.down_proj.base_layer.weight.dtype == torch.bfloat16
    assert trained_beside(model).keys() == {found[key] for key in wanted | other}


def test_a_pair_is_answered_alike_alone_and_among_others(start: Path) -> None:
    model, processor = trained(start, settings("full")), load_processor(start)
    needs = needs_of(settings("full"))
    pairs = [load_example(make_example(preference(n), needs), 1 << 20, pairs=True) for n in range(3)]
    together = answer_rows(model, processor, pairs, most_tokens=5)
    assert together == [answer_rows(model, processor, [pair], most_tokens=5)[0] for pair in pairs]
    assert len(set(together)) > 1


def load_model_in_half(start: Path, config: TrainConfig) -> Any:
    precise = config.optimiser.model_copy(update={"precision": "bf16"})
    return load_to_train(start, config.model_copy(update={"optimiser": precise}))


def test_only_the_module_is_trained_beside_adapters_where_nothing_else_that_sees_is(start: Path) -> None:
    model = settings("merged").model.model_copy(update={"train_vision": False})
    config = settings("merged").model_copy(update={"model": model})
    names = trained_beside(prepare_model(load_to_train(start, config), config)).keys()
    assert names
    assert all(name.startswith(f"{NAME}.") for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_model_is_loaded_as_it_was_trained(start: Path, kind: str, tmp_path: Path) -> None:
    if kind in ("full", "adapters") and "llava" in start.name:
        pytest.skip("the family makes no difference to these")
    config = settings(kind)
    model = trained(start, config)
    save(model, start, tmp_path)
    finish_model(tmp_path, start, config)
    expected = logits(model, start)
    again = load_model(tmp_path, config.model, dtype=torch.float32).eval()
    torch.testing.assert_close(logits(again, start), expected, rtol=1e-4, atol=1e-4)
    assert getattr(again, NAME).sizes.weight_per == "layer"
    assert (tmp_path / SIZES).exists()
    assert (tmp_path / TUNED).exists() == (kind == "adapters")
    revision = find_model(str(tmp_path)).revision
    if kind != "adapters":
        loaded: Any = AutoModelForImageTextToText.from_pretrained(tmp_path, output_loading_info=True)
        plain, report = loaded
        assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        assert load_differential(plain.eval(), tmp_path)
        torch.testing.assert_close(logits(plain, start), expected, rtol=1e-4, atol=1e-4)
    if kind in ("merged", "in the tower"):
        beside = load_model(tmp_path / FOLDER, config.model, dtype=torch.float32).eval()
        torch.testing.assert_close(logits(beside, start), expected, rtol=1e-4, atol=1e-4)
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
    config = settings("adapters")
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
        ({name: whole[name] * float("nan")}, "NaN"),
        ({other: weight for other, weight in whole.items() if other != name}, name),
    ):
        save_file(broken, tmp_path / TUNED)
        with pytest.raises(ModelError, match=why):
            restore_beside(model, tmp_path)
    (tmp_path / TUNED).unlink()
    with pytest.raises(ModelError, match=TUNED):
        restore_beside(model, tmp_path)
