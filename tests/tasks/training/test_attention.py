"""Attention in two parts, against one mask of all tokens; windows of a vision tower, against one call for each."""

from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForImageTextToText

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.training import attention
from pairwright.tasks.training.attention import WINDOWS, attend_in_parts, choose_attention, join_windows


def inputs(key_heads: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, 7, 8, generator=generator).requires_grad_() for heads in (4, key_heads, key_heads)]


def attend(given: list[torch.Tensor], mask: torch.Tensor | None) -> list[torch.Tensor]:
    """Return what comes out, and the gradients of its squares' sum."""
    layer = SimpleNamespace(is_causal=True, num_key_value_groups=4 // given[1].shape[1])
    for tensor in given:
        tensor.grad = None
    found, _ = attend_in_parts(layer, *given, mask)
    found.square().sum().backward()
    return [found.detach(), *(tensor.grad for tensor in given if tensor.grad is not None)]


@pytest.mark.parametrize("key_heads", [1, 4])
def test_the_parts_are_the_whole(key_heads: int) -> None:
    hidden = torch.rand(2, 1, 3, 7, generator=torch.Generator().manual_seed(1)) < 0.3
    hidden[..., 0] = False
    last = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)
    causal = torch.full((4, 7), torch.finfo(torch.float32).min).triu(1).expand(2, 1, 4, 7)
    given = inputs(key_heads)
    parts, whole = attend(given, last), attend(given, torch.cat([causal, last], dim=2))
    assert parts[0].shape == (2, 7, 4, 8)
    assert len(parts) == 4
    assert all(torch.allclose(part, one, rtol=1e-5, atol=1e-6) for part, one in zip(parts, whole, strict=True))


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
    """Return a tower's features of random pixels, the pixels, and how often attention was called."""
    tower, grid = model.model.visual, torch.tensor(grids)
    shape = int(grid.prod(1).sum()), tower.patch_embed.proj.weight[0].numel()
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with Counting() as counting:
        return tower(pixels, grid_thw=grid).pooler_output, pixels, counting.calls


@pytest.mark.parametrize("grids", [EQUAL, UNEQUAL])
def test_features_and_gradients_are_the_same_of_fewer_calls(model, grids, tmp_path):
    config = model.model.visual.config
    config._attn_implementation = "sdpa"
    wanted, pixels, before = look(model, grids)
    (slope,) = torch.autograd.grad(wanted.square().sum(), pixels)
    assert join_windows(model)
    assert config._attn_implementation == WINDOWS
    found, pixels, calls = look(model, grids)
    (got,) = torch.autograd.grad(found.square().sum(), pixels)
    torch.testing.assert_close(found, wanted, **CLOSE)
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


class Flash:
    """FlashAttention as it is documented, in plain steps: heads behind places, keys that end where queries do."""

    def __init__(self):
        self.calls = 0

    def __call__(self, query, key, value, *, softmax_scale, causal):
        self.calls += 1
        assert causal
        key, value = (one.repeat_interleave(query.shape[2] // one.shape[2], 2) for one in (key, value))
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key).float() * (softmax_scale or query.shape[-1] ** -0.5)
        seen = torch.ones(scores.shape[2:], dtype=torch.bool).tril(key.shape[1] - query.shape[1])
        return torch.einsum("bhqk,bkhd->bqhd", scores.masked_fill(~seen, -torch.inf).softmax(-1).to(value.dtype), value)


def test_flash_attention_has_what_needs_no_mask():
    layer = SimpleNamespace(is_causal=True, num_key_value_groups=4)
    given = [one.detach().bfloat16() for one in inputs(1)]
    given[0] = given[0].float()  # as autocast leaves rotated queries
    mask = torch.zeros(2, 1, 3, 7).masked_fill(torch.arange(7) == 2, torch.finfo(torch.bfloat16).min).bfloat16()
    for query, own in ((given[0], mask), (given[0], None), (given[0][:, :, -1:], None)):
        flash, plain = Flash(), (query.bfloat16(), *given[1:])
        found, _ = attend_in_parts(layer, query if own is None else plain[0], *given[1:], own, flash=flash)
        wanted, _ = attend_in_parts(layer, *plain, own)
        assert flash.calls == 1
        assert torch.allclose(found.float(), wanted.float(), rtol=0.02, atol=0.02)
    whole = [one.float() for one in given]
    assert attend_in_parts(layer, *whole, None, flash=None)[0].equal(
        attend_in_parts(layer, *whole, None, flash=Flash())[0]
    ), "float32 is SDPA's"


@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3"])
def test_flash_attention_that_is_not_here_is_refused(name, monkeypatch):
    monkeypatch.setattr(attention, f"is_flash_attn_{name[-1]}_available", lambda: False)
    with pytest.raises(ConfigError, match=rf"model\.attn_implementation: {name} needs a GPU"):
        choose_attention(name)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3"])
def test_flash_attention_gives_what_sdpa_gives(name):
    kernel = pytest.importorskip(attention.PACKAGES[name]).flash_attn_func
    layer = SimpleNamespace(is_causal=True, num_key_value_groups=4)
    given = [torch.randn(2, heads, 70, 64, device="cuda", dtype=torch.bfloat16) for heads in (4, 1, 1)]
    for queries in (70, 1):
        own = [given[0][:, :, -queries:], *given[1:]]
        found, wanted = (attend_in_parts(layer, *own, None, flash=flash)[0] for flash in (kernel, None))
        assert torch.allclose(found, wanted, rtol=0.02, atol=0.02)
