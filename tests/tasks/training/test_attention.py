"""Attention in two parts, against one mask of all tokens; windows of a vision tower, against one
call for each."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForImageTextToText

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.training import attention
from pairwright.tasks.training.attention import WINDOWS, choose_attention, join_windows
from pairwright.tasks.training.load_model import load_model

EQUAL = [[1, 8, 8], [1, 8, 8]]
"""Patches of images whose windows are of 4 x 4."""
UNEQUAL = [[1, 4, 6], [1, 10, 4], [1, 4, 6]]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def model(request, checkpoint):
    return AutoModelForImageTextToText.from_pretrained(checkpoint(request.param))


class Counting(TorchFunctionMode):
    """Count the calls of attention."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.calls += function is torch.nn.functional.scaled_dot_product_attention
        return function(*args, **kwargs or {})


def look(model, grids):
    """Return a tower's features of random pixels, the pixels, and how often attention was
    called."""
    tower, grid = model.model.visual, torch.tensor(grids)
    shape = int(grid.prod(1).sum()), tower.patch_embed.proj.weight[0].numel()
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with Counting() as counting:
        return tower(pixels, grid_thw=grid).pooler_output, pixels, counting.calls


@pytest.mark.parametrize("grids", [EQUAL, UNEQUAL])
def test_features_and_gradients_are_the_same_of_fewer_calls(model, grids, tmp_path):
    config = model.model.visual.config
    config._attn_implementation = "sdpa"
    expected, pixels, before = look(model, grids)
    (slope,) = torch.autograd.grad(expected.square().sum(), pixels)
    assert join_windows(model)
    assert config._attn_implementation == WINDOWS
    actual, pixels, calls = look(model, grids)
    (got,) = torch.autograd.grad(actual.square().sum(), pixels)
    torch.testing.assert_close(actual, expected, **CLOSE)
    torch.testing.assert_close(got, slope, rtol=1e-4, atol=1e-5 * slope.abs().max().item())
    assert slope.abs().max() > 0
    layers = len(model.model.visual.blocks)
    assert calls < before
    assert calls == layers or grids is UNEQUAL
    model.save_pretrained(tmp_path)
    assert WINDOWS not in (tmp_path / "config.json").read_text()


def test_the_language_model_and_towers_without_windows_stay_as_they_are(model, checkpoint):
    join_windows(model)
    assert model.model.language_model.config._attn_implementation == "sdpa"
    other = AutoModelForImageTextToText.from_pretrained(checkpoint("llava_onevision"))
    assert not join_windows(other)


@pytest.mark.parametrize("name", ["sdpa", "eager"])
def test_attention_is_the_named_one(name, qwen):
    config = TrainConfig.model_validate(
        {"objective": "sft", "model": {"attn_implementation": name}}
    )
    model = load_model(qwen, config.model, dtype=torch.float32)
    assert model.config.get_text_config()._attn_implementation == name


@pytest.mark.parametrize(
    ("family", "installed", "what"),
    [
        ("gemma3", True, "gemma3: its image tokens see each other"),
        ("qwen2_vl", False, "needs flash-attn"),
        ("qwen2_vl", True, "needs a GPU"),
    ],
)
def test_flash_attention_is_refused_where_it_cannot_be(family, installed, what, monkeypatch):
    monkeypatch.setattr(attention, "find_spec", lambda _name: installed or None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"attn_implementation: flash_attention_2 .*{what}"):
        choose_attention("flash_attention_2", family)


@pytest.mark.parametrize(
    ("section", "values"),
    [("model", {"shared_prompt": "always"}), ("optimiser", {"precision": "fp32"})],
)
def test_flash_attention_has_no_shared_prompt_and_16_bits(section, values):
    settings = {"objective": "dpo", "model": {"attn_implementation": "flash_attention_2"}}
    settings[section] = {**settings.get(section, {}), **values}
    with pytest.raises(ValueError, match=r"model\.attn_implementation: flash_attention_2"):
        TrainConfig.model_validate(settings)
