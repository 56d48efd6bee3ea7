"""MDP: what differs between two images at several depths of a vision tower (paper 002, Eqs. 1 to 8).

Concatenation is over channels in Eqs. 1, 3 and 7, over tokens in 5 and 6. Two things are ours: Eq. 6 has a residual,
without which the features themselves are lost at first; and the outcome is added to the tower's own features through a
map that begins at zero, so that an untrained module changes nothing. The paper leaves open whether scales share their
weights, whether a score is a vector or a number, and whether scores compete: all are settings.

For width d a scale has about 41 d^2 weights (``depth`` 2), which all share unless told otherwise; SigLIP's: 54 M.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import nn

from pairwright.tasks.models.cross_attention import Attention, Layers

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentialSizes:
    """Say how differences are perceived."""

    width: int
    """Of the tower's features."""
    heads: int
    layers: tuple[int, ...]
    """Blocks of the tower whose features are compared, from 1; the last is the one that the model goes on with."""
    depth: int = 2
    """Layers of self- and cross-attention, one on top of the other (Eqs. 4 and 5)."""
    shared_weights: bool = True
    """Whether all scales have the same weights."""
    weight_per: Literal["channel", "layer"] = "channel"
    """What weighs a scale (Eq. 7): each channel, or all alike."""
    softmax: bool = False
    """Whether the scales' weights sum to 1 (softmax); else each is between 0 and 1 (sigmoid, as printed)."""


@dataclass(frozen=True, slots=True)
class Perceived:
    """Hold what one scale perceives of a pair, ``(B, tokens, width)`` each: both images, and Eq. 3's difference."""

    first: "Tensor"
    second: "Tensor"
    difference: "Tensor"

    def pool(self) -> "Tensor":
        """Return ``(B, 3 width)``: the means over the tokens, side by side."""
        return torch.cat([one.mean(1) for one in (self.first, self.second, self.difference)], dim=-1)


class Scale(nn.Module):
    """Compare features of one depth (Eqs. 1 to 6)."""

    def __init__(self, sizes: DifferentialSizes) -> None:
        super().__init__()
        width = sizes.width
        self.weigh = nn.Linear(2 * width, width, bias=False)
        self.join = nn.Linear(3 * width, width, bias=False)
        self.layers = Layers(sizes.depth, width, sizes.heads, dropout=0.0)
        self.feature_norm, self.difference_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.refine = Attention(width, sizes.heads)

    def forward(self, first: "Tensor", second: "Tensor") -> Perceived:
        """Return what is perceived of features ``(B, tokens, width)`` of two images, place by place the same."""
        one, other = self.feature_norm(first), self.feature_norm(second)
        difference = self.join(torch.cat(self.blocks(one, other), dim=-1))
        found = difference
        for layer in self.layers:
            found = layer.look(found)
            found = layer.finish(found, layer.other.see(torch.cat([one, other, found], dim=1)))
        found = self.difference_norm(found)
        return Perceived(first + self._refine(one, found), second + self._refine(other, found), difference)

    def _refine(self, features: "Tensor", difference: "Tensor") -> "Tensor":
        return self.refine(features, self.refine.see(torch.cat([features, difference], dim=1)))

    def blocks(self, first: "Tensor", second: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
        """Return what Eq. 3 joins: both images, weighed by each other (Eqs. 1 and 2), and their difference."""
        weighed = [
            own * self.weigh(torch.cat([own, other], dim=-1)).sigmoid()
            for own, other in ((first, second), (second, first))
        ]
        return weighed[0], weighed[1], weighed[0] - weighed[1]


class DifferentialPerception(nn.Module):
    """Add to the features of two images what differs between them."""

    def __init__(self, sizes: DifferentialSizes) -> None:
        super().__init__()
        self.sizes = sizes
        count = 1 if sizes.shared_weights else len(sizes.layers)
        self.scales = nn.ModuleList(Scale(sizes) for _ in range(count))
        width = sizes.width
        self.score = nn.Sequential(
            nn.Linear(3 * width, width), nn.GELU(), nn.Linear(width, width if sizes.weight_per == "channel" else 1)
        )
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, scales: "Sequence[tuple[Tensor, Tensor]]") -> "tuple[Tensor, Tensor]":
        """Return the features of both images to go on with, ``(B, tokens, width)``.

        Args:
            scales: per layer of ``sizes.layers``, the features of the first and of the second image.
        """
        found = [scale(*pair) for scale, pair in zip(self._scales(), scales, strict=True)]
        scores = torch.stack([self.score(one.pool()) for one in found])
        scores = scores.softmax(0) if self.sizes.softmax else scores.sigmoid()
        weights = scores[:, :, None]
        firsts, seconds = (torch.stack(side) for side in zip(*((one.first, one.second) for one in found), strict=True))
        first, second = scales[-1]
        return first + self.out((weights * firsts).sum(0)), second + self.out((weights * seconds).sum(0))

    def _scales(self) -> Iterator[Scale]:
        for place in range(len(self.sizes.layers)):
            yield cast("Scale", self.scales[0 if self.sizes.shared_weights else place])


def spread_layers(depth: int, count: int = 4) -> tuple[int, ...]:
    """Return the last block of a tower and those before it, a ninth of its depth apart: 17, 20, 23, 26 of 26."""
    step = max(1, round(depth / 9))
    return tuple(sorted({max(1, depth - step * back) for back in range(count)}))
