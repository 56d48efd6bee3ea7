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

WIDENING = 4  # width of the middle of the two linear maps, in widths of the layer


class KeysValues(NamedTuple):
    """Keys and values to attend to, ``(B, heads, tokens, width / heads)``."""

    keys: "Tensor"
    values: "Tensor"

    def then(self, other: "KeysValues") -> "KeysValues":
        """Return both, concatenated."""
        return KeysValues(
            torch.cat([self.keys, other.keys], 2), torch.cat([self.values, other.values], 2)
        )


class Attention(nn.Module):
    """Multi-head attention with four linear maps (Vaswani et al. 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def see(self, tokens: "Tensor") -> KeysValues:
        """Return the keys and values of ``(B, tokens, width)``."""
        return KeysValues(self._split(self.key(tokens)), self._split(self.value(tokens)))

    def forward(
        self,
        tokens: "Tensor",
        seen: KeysValues,
        *,
        allowed: "Tensor | None" = None,
        causal: bool = False,
    ) -> "Tensor":
        """Return ``(B, tokens, width)``: the tokens' attention to ``seen``.

        ``allowed``, ``(B, seen)`` bool with at least one position per row, restricts it; ``None``:
        everywhere. ``causal`` lets a token see itself and earlier ones, and ignores ``allowed``.
        """
        mask = None if allowed is None or causal else allowed[:, None, None]
        found = functional.scaled_dot_product_attention(
            self._split(self.query(tokens)),
            seen.keys,
            seen.values,
            attn_mask=mask,
            is_causal=causal,
        )
        return self.out(found.transpose(1, 2).flatten(2))

    def _split(self, tokens: "Tensor") -> "Tensor":
        return tokens.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """Self-attention, attention to something else, two linear maps."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.own, self.other = Attention(width, heads), Attention(width, heads)
        self.own_norm, self.other_norm, self.think_norm = (nn.LayerNorm(width) for _ in range(3))
        self.widen, self.narrow = (
            nn.Linear(width, WIDENING * width),
            nn.Linear(WIDENING * width, width),
        )
        self.drop = nn.Dropout(dropout)

    def look(
        self, tokens: "Tensor", *, allowed: "Tensor | None" = None, causal: bool = False
    ) -> "Tensor":
        """Return the tokens after self-attention, to ``allowed`` (B, tokens) ones."""
        return self.look_back(tokens, None, allowed=allowed, causal=causal)[0]

    def look_back(
        self,
        tokens: "Tensor",
        before: KeysValues | None,
        *,
        allowed: "Tensor | None" = None,
        causal: bool = False,
    ) -> "tuple[Tensor, KeysValues]":
        """Return the same for tokens that follow others, and all keys and values so far."""
        normed = self.own_norm(tokens)
        seen = self.own.see(normed)
        seen = before.then(seen) if before else seen
        return tokens + self.drop(self.own(normed, seen, allowed=allowed, causal=causal)), seen

    def finish(
        self, tokens: "Tensor", seen: KeysValues, *, allowed: "Tensor | None" = None
    ) -> "Tensor":
        """Return the tokens after cross-attention, to ``allowed`` (B, seen) positions, and the linear maps."""
        tokens = tokens + self.drop(self.other(self.other_norm(tokens), seen, allowed=allowed))
        return tokens + self.drop(
            self.narrow(self.drop(functional.gelu(self.widen(self.think_norm(tokens)))))
        )


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
