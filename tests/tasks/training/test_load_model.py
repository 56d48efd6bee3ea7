"""Models are loaded whole or refused in words: foreign kinds, wrong settings, damaged and hostile
weights."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.training.load_model import (
    choose_precision,
    choose_storage,
    load_model,
    load_processor,
)

WEIGHTS = "model.safetensors"


def load(folder, **settings):
    return load_model(folder, ModelConfig(**settings), dtype=torch.float32)


def change_config(folder, text=None, **changes):
    """Change settings of a checkpoint, and of its language model."""
    config = json.loads((folder / "config.json").read_text())
    config |= changes
    config["text_config"] |= text or {}
    (folder / "config.json").write_text(json.dumps(config))


def test_each_family_is_loaded_with_all_of_its_weights(family):
    model, stored = load(family), load_file(family / WEIGHTS)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == sum(tensor.numel() for tensor in stored.values())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert load_processor(family).image_processor is not None


def test_code_of_a_checkpoint_is_never_run(folder, tmp_path):
    ran = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nclass Model: pass\n"
    (folder / "theirs.py").write_text(code)
    kinds = ("AutoConfig", "AutoModelForImageTextToText", "AutoProcessor")
    mapping = dict.fromkeys(kinds, "theirs.Model")
    change_config(folder, auto_map=mapping)
    load(folder)
    change_config(folder, model_type="theirs")
    with pytest.raises(ModelError, match="'theirs'"):
        load(folder)
    processor = {"processor_class": "Model", "auto_map": mapping}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ModelError):
        load_processor(folder)
    assert not ran.exists()


def layers(count):
    return {"num_hidden_layers": count, "layer_types": ["full_attention"] * count}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (layers(3), r"layers\.2"),
        (layers(1), r"layers\.1"),
        ({"intermediate_size": 95}, r"down_proj.weight \(64, 96\) and \(64, 95\)"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": -1}, "negative dimension"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(folder, text, what):
    change_config(folder, text)
    with pytest.raises(ModelError, match=what):
        load(folder)


@pytest.mark.parametrize("size", [100_000, 4, 0])
def test_weights_that_are_cut_are_refused(size, folder):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size])
    with pytest.raises(ModelError, match=str(folder)):
        load(folder)


def test_weights_that_are_none_are_refused(folder):
    (folder / WEIGHTS).write_bytes(b"\xff" * 64)
    with pytest.raises(ModelError, match=str(folder)):
        load(folder)


def change_weights(folder, *, missing="lm_head.bias", added="lm_head.weight"):
    tensors = load_file(folder / WEIGHTS)
    tensors.pop(missing, None)
    tensors.setdefault(added, torch.zeros(3))
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def test_a_tensor_that_nobody_needs_is_warned_of(folder, caplog):
    change_weights(folder, added="model.position_ids")
    load(folder)
    assert "position_ids" in caplog.text


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"added": "stranger.weight"}, "unknown weights stranger"),
        ({"missing": "lm_head.weight", "added": "model.position_ids"}, r"lm_head\.weight"),
    ],
)
def test_unknown_and_missing_tensors_are_refused(change, what, folder):
    change_weights(folder, **change)
    with pytest.raises(ModelError, match=what):
        load(folder)


def test_a_processor_without_a_chat_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match=f"--model {folder}"):
        load_processor(folder)


@pytest.mark.parametrize(("tuning", "stored"), [("full", torch.float32), ("lora", torch.bfloat16)])
def test_what_is_small_is_kept_where_steps_are_small(tuning, stored):
    """Full tuning keeps float32 whatever is computed in: 0.02 + 5e-7 is 0.02 in bfloat16."""
    values = {"model": {"tuning": tuning}, "optimiser": {"precision": "bf16"}}
    config = TrainConfig.model_validate({"objective": "sft", **values})
    assert (choose_precision(config), choose_storage(config)) == (torch.bfloat16, stored)
