"""Attention layers of NAMC and differential perception.

A layer has self-attention, cross-attention and two linear maps: 16 d^2 weights. Norms come first,
so that it trains without warm-up (the papers do not specify).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

WIDENING = 4
"""Width of the middle of the two linear maps, in widths of the layer."""


class KeysValues(NamedTuple):
    """Keys and values to attend to, ``(B, heads, tokens, width / heads)``."""

    keys: "Tensor"
    values: "Tensor"

    def then(self, other: "KeysValues") -> "KeysValues":
        """Return both, concatenated."""
        keys = torch.cat([self.keys, other.keys], 2)
        values = torch.cat([self.values, other.values], 2)
        return KeysValues(keys, values)


class Attention(nn.Module):
    """Multi-head attention with four linear maps (Vaswani et al. 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def keys_and_values(self, tokens: "Tensor") -> KeysValues:
        """Return the keys and values of ``(B, tokens, width)``."""
        keys = self._split(self.key(tokens))
        values = self._split(self.value(tokens))
        return KeysValues(keys, values)

    def forward(
        self,
        tokens: "Tensor",
        context: KeysValues,
        *,
        allowed: "Tensor | None" = None,
        causal: bool = False,
    ) -> "Tensor":
        """Return ``(B, tokens, width)``: the tokens' attention to ``context``.

        ``allowed``, ``(B, context)`` bool with at least one position per row, restricts it;
        ``None``: everywhere. ``causal`` lets a token attend to itself and earlier ones, and ignores
        ``allowed``.
        """
        mask = None if allowed is None or causal else allowed[:, None, None]
        attended = functional.scaled_dot_product_attention(
            self._split(self.query(tokens)),
            context.keys,
            context.values,
            attn_mask=mask,
            is_causal=causal,
        )
        return self.out(attended.transpose(1, 2).flatten(2))

    def _split(self, tokens: "Tensor") -> "Tensor":
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """Self-attention, attention to something else, two linear maps."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.own = Attention(width, heads)
        self.other = Attention(width, heads)
        self.own_norm = nn.LayerNorm(width)
        self.other_norm = nn.LayerNorm(width)
        self.think_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, WIDENING * width)
        self.narrow = nn.Linear(WIDENING * width, width)
        self.drop = nn.Dropout(dropout)

    def attend_self(
        self,
        tokens: "Tensor",
        *,
        allowed: "Tensor | None" = None,
        causal: bool = False,
    ) -> "Tensor":
        """Return the tokens after self-attention, to ``allowed`` (B, tokens) ones."""
        attended, _ = self.attend_cached(tokens, None, allowed=allowed, causal=causal)
        return attended

    def attend_cached(
        self,
        tokens: "Tensor",
        before: KeysValues | None,
        *,
        allowed: "Tensor | None" = None,
        causal: bool = False,
    ) -> "tuple[Tensor, KeysValues]":
        """Return the same for tokens that follow others, and all keys and values so far."""
        normed = self.own_norm(tokens)
        context = self.own.keys_and_values(normed)
        if before:
            context = before.then(context)
        attended = self.own(normed, context, allowed=allowed, causal=causal)
        return tokens + self.drop(attended), context

    def attend_other(
        self,
        tokens: "Tensor",
        context: KeysValues,
        *,
        allowed: "Tensor | None" = None,
    ) -> "Tensor":
        """Return the tokens after cross-attention, to ``allowed`` positions, and the linear maps.

        ``allowed``: ``(B, context)``.
        """
        attended = self.other(self.other_norm(tokens), context, allowed=allowed)
        tokens = tokens + self.drop(attended)
        hidden = self.drop(functional.gelu(self.widen(self.think_norm(tokens))))
        return tokens + self.drop(self.narrow(hidden))


class Layers(nn.Module):
    """Layers, one after the other."""

    def __init__(self, count: int, width: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Layer(width, heads, dropout) for _ in range(count))

    def __iter__(self) -> Iterator[Layer]:
        return iter(cast("Iterable[Layer]", self.inner))


def visible(masked: "Tensor") -> "Tensor":
    """Return the unmasked positions; all where a row is fully masked, to avoid NaN."""
    return ~masked | masked.all(1, keepdim=True)
