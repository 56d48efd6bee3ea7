"""Models are loaded whole or refused in words: foreign kinds, wrong settings, damaged and hostile
weights."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.fixture
def folder(qwen: Path, tmp_path: Path) -> Path:
    """Return a copy that a test may damage."""
    return Path(shutil.copytree(qwen, tmp_path / "qwen"))


def load(folder: Path, **settings: Any) -> Any:
    return load_model(folder, ModelConfig(**settings), dtype=torch.float32)


def settings_of(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "config.json").read_text())
    change(content)
    (folder / "config.json").write_text(json.dumps(content))


def layers(content: dict[str, Any], count: int) -> None:
    content["text_config"].update(num_hidden_layers=count, layer_types=["full_attention"] * count)


def weights_of(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_each_family_is_loaded_with_all_of_its_weights(family: Path) -> None:
    model, stored = load(family), load_file(family / "model.safetensors")
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(
        t.numel() for t in stored.values()
    )
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert load_processor(family).image_processor is not None


def test_code_of_a_checkpoint_is_never_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (folder / "theirs.py").write_text(
        f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nclass Model: pass\n"
    )
    mapping = {
        "AutoConfig": "theirs.Model",
        "AutoModelForImageTextToText": "theirs.Model",
        "AutoProcessor": "theirs.Model",
    }
    settings_of(folder, lambda config: config.update(auto_map=mapping))
    load(folder)
    settings_of(folder, lambda config: config.update(model_type="theirs"))
    with pytest.raises(ModelError, match="'theirs'"):
        load(folder)
    (folder / "processor_config.json").write_text(
        json.dumps({"processor_class": "Model", "auto_map": mapping})
    )
    with pytest.raises(ModelError):
        load_processor(folder)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: layers(c, 3), r"layers\.2"),
        (lambda c: layers(c, 1), r"layers\.1"),
        (
            lambda c: c["text_config"].update(intermediate_size=95),
            r"down_proj.weight \(64, 96\) and \(64, 95\)",
        ),
        (lambda c: c["text_config"].update(hidden_size="wide"), "hidden_size"),
        (lambda c: c["text_config"].update(hidden_size=-1), "negative dimension"),
    ],
)
def test_settings_that_do_not_fit_the_weights_are_refused(
    folder: Path, change: Any, words: str
) -> None:
    settings_of(folder, change)
    with pytest.raises(ModelError, match=words):
        load(folder)


def test_damaged_weights_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    for damaged in (data[: len(data) // 2], data[:4], b"", b"\xff" * 64):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match=str(folder)):
            load(folder)


def test_missing_tensor_is_refused_and_extra_tensor_warned(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights_of(folder, lambda tensors: tensors.update({"model.position_ids": torch.zeros(3)}))
    load(folder)
    assert "position_ids" in caplog.text
    weights_of(folder, lambda tensors: tensors.update({"stranger.weight": torch.zeros(3)}))
    with pytest.raises(ModelError, match="unknown weights stranger"):
        load(folder)
    weights_of(
        folder,
        lambda tensors: [tensors.pop(name) for name in ("stranger.weight", "lm_head.weight")],
    )
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        load(folder)


def test_a_processor_without_a_chat_template_is_refused(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ConfigError, match=f"--model {folder}"):
        load_processor(folder)


def test_what_is_small_is_kept_where_steps_are_small() -> None:
    """Full tuning keeps float32 whatever is computed in: 0.02 + 5e-7 is 0.02 in bfloat16."""
    small = torch.tensor(0.02, dtype=torch.bfloat16)
    assert small + 5e-7 == small
    assert torch.tensor(0.02) + 5e-7 != torch.tensor(0.02)
    precise = {"optimiser": {"precision": "bf16"}}
    for tuning, stored in (("full", torch.float32), ("lora", torch.bfloat16)):
        config = TrainConfig.model_validate(
            {"objective": "sft", "model": {"tuning": tuning}, **precise}
        )
        assert (choose_precision(config), choose_storage(config)) == (torch.bfloat16, stored)
