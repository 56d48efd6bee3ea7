"""Attention in two parts, against one mask of all tokens; which settings give which."""

from types import SimpleNamespace

import pytest
import torch

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.training.attention import FLEX, SPLIT, attend_in_parts, choose_attention


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


def test_without_a_mask_all_is_causal() -> None:
    mask = torch.full((7, 7), torch.finfo(torch.float32).min).triu(1).expand(2, 1, 7, 7)
    given = inputs(2)
    for part, one in zip(attend(given, None), attend(given, mask), strict=True):
        assert torch.allclose(part, one, rtol=1e-5, atol=1e-6)


def test_settings_choose_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_attention("eager") == "eager"
    assert choose_attention("auto") == choose_attention("sdpa") == {"text_config": SPLIT, "vision_config": "sdpa"}
    with pytest.raises(ConfigError, match=r"model\.attn_implementation: flex_attention .*sdpa"):
        choose_attention("flex_attention")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_attention("flex_attention") == {"text_config": FLEX, "vision_config": "sdpa"}
