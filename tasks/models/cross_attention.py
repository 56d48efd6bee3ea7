"""What NAMC and differential perception are built of: attention, and a layer that looks at itself and at others.

A layer looks at itself, then at something else, then goes through two linear maps: 16 d^2 weights. Norms come first
(the papers do not say where; so it trains without warm-up).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

WIDENING = 4
"""Of a layer's two linear maps, how much wider the middle is."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be attended to: keys and values, ``(B, heads, tokens, width / heads)``."""

    keys: "Tensor"
    values: "Tensor"

    def then(self, other: "Seen") -> "Seen":
        """Return both, one after the other."""
        return Seen(torch.cat([self.keys, other.keys], 2), torch.cat([self.values, other.values], 2))


class Attention(nn.Module):
    """Multi-head attention with four linear maps (Vaswani et al. 2017)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def see(self, tokens: "Tensor") -> Seen:
        """Return ``(B, tokens, width)`` as what can be attended to."""
        return Seen(self._split(self.key(tokens)), self._split(self.value(tokens)))

    def forward(
        self, tokens: "Tensor", seen: Seen, *, allowed: "Tensor | None" = None, causal: bool = False
    ) -> "Tensor":
        """Return ``(B, tokens, width)``: the tokens that ask, after they looked at what is ``seen``.

        They may look where ``allowed``, ``(B, seen)`` bool, at least at one place per row; ``None``: everywhere. With
        ``causal`` a token sees only itself and those before it, and ``allowed`` does not count.
        """
        mask = None if allowed is None or causal else allowed[:, None, None]
        found = functional.scaled_dot_product_attention(
            self._split(self.query(tokens)), seen.keys, seen.values, attn_mask=mask, is_causal=causal
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
        self.widen, self.narrow = nn.Linear(width, WIDENING * width), nn.Linear(WIDENING * width, width)
        self.drop = nn.Dropout(dropout)

    def look(self, tokens: "Tensor", *, allowed: "Tensor | None" = None, causal: bool = False) -> "Tensor":
        """Return the tokens after they looked at each other, where ``allowed`` (B, tokens)."""
        return self.look_back(tokens, None, allowed=allowed, causal=causal)[0]

    def look_back(
        self, tokens: "Tensor", before: Seen | None, *, allowed: "Tensor | None" = None, causal: bool = False
    ) -> "tuple[Tensor, Seen]":
        """Return the same of tokens that follow others, and all that can now be seen."""
        normed = self.own_norm(tokens)
        seen = self.own.see(normed)
        seen = before.then(seen) if before else seen
        return tokens + self.drop(self.own(normed, seen, allowed=allowed, causal=causal)), seen

    def finish(self, tokens: "Tensor", seen: Seen, *, allowed: "Tensor | None" = None) -> "Tensor":
        """Return the tokens after they looked at something else, where ``allowed`` (B, seen), and thought."""
        tokens = tokens + self.drop(self.other(self.other_norm(tokens), seen, allowed=allowed))
        return tokens + self.drop(self.narrow(self.drop(functional.gelu(self.widen(self.think_norm(tokens))))))


class Layers(nn.Module):
    """Layers, one after the other."""

    def __init__(self, count: int, width: int, heads: int, *, dropout: float) -> None:
        super().__init__()
        self.inner = nn.ModuleList(Layer(width, heads, dropout) for _ in range(count))

    def __iter__(self) -> Iterator[Layer]:
        return iter(cast("Iterable[Layer]", self.inner))


def visible(masked: "Tensor") -> "Tensor":
    """Return where a row may be looked at: where it is not masked; everywhere if it is all masked, else NaN follows."""
    return ~masked | masked.all(1, keepdim=True)
