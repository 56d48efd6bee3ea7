"""The retriever's usual encoder: small trainable heads on vectors of images and texts that are computed once (ours).

A pair is ``[f1, f2, f2 - f1, f1 * f2]`` of its images' vectors, a text its own vector, all scaled so that their numbers
are about 1; two layers on the pair's side, one on the text's, take them into one space, where their cosine says how
well they fit.

A scale of 100 and a temperature of 2 are made for CLIP, whose cosines of one image with any texts lie in a narrow cone:
they differ by some hundredths. Heads that start anew fill the whole sphere, and one text would get nearly all of q. So
their vectors have a constant part, and only ``SPREAD`` of a cosine varies (ours): with descriptions of random scenes, q
starts with 80 % of the entropy of equal chances then, and with 2 % on the rendered ones without.

Needs PyTorch. With 128 candidates and vectors of 768 numbers a pair costs 0.05 GFLOP forward, a thousandth of what the
policy does.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from pairwright.tasks.training.retriever.features import Features
from pairwright.tasks.training.retriever.pool import Places

if TYPE_CHECKING:
    from torch import Tensor

BLOCKS = 4
SPREAD = 0.2
"""Cosines lie between 1 - 2 SPREAD and 1."""


class Heads(nn.Module):
    """Map pairs and texts into one space."""

    def __init__(self, image_size: int, text_size: int, width: int, *, seed: int) -> None:
        """Make new heads, the same for the same seed whatever was drawn before."""
        super().__init__()
        with torch.random.fork_rng(devices=[]):  # what is drawn elsewhere does not depend on these
            self.pair = nn.Sequential(nn.Linear(BLOCKS * image_size, width), nn.GELU(), nn.Linear(width, width))
            self.text = nn.Linear(text_size, width)
        _draw_weights([self.pair[0], self.pair[2], self.text], torch.Generator().manual_seed(seed))
        self.image_scale, self.text_scale = float(image_size) ** 0.5, float(text_size) ** 0.5

    def pairs(self, vectors: "Tensor") -> "Tensor":
        """Return ``(B, width + 1)`` unit vectors of ``(B, 2, d)`` images' vectors."""
        first, second = (vectors * self.image_scale).unbind(1)
        parts = [first, second, second - first, first * second]
        return _into_cone(self.pair(torch.cat(parts, dim=-1)))

    def texts(self, vectors: "Tensor") -> "Tensor":
        """Return ``(N, width + 1)`` unit vectors of ``(N, d)`` texts' vectors."""
        return _into_cone(self.text(vectors * self.text_scale))


def _into_cone(vectors: "Tensor") -> "Tensor":
    """Return unit vectors with one more number, which is the same for all: cosines become 1 - SPREAD (1 - cosine)."""
    free = functional.normalize(vectors, dim=-1) * SPREAD**0.5
    return functional.pad(free, (0, 1), value=(1 - SPREAD) ** 0.5)


def _draw_weights(layers: Iterable[nn.Module], generator: torch.Generator) -> None:
    """Draw the weights of linear layers as PyTorch does by itself, from a generator of their own."""
    with torch.no_grad():
        for layer in layers:
            bound = next(layer.parameters()).shape[1] ** -0.5
            for weight in layer.parameters():
                weight.uniform_(-bound, bound, generator=generator)


class HeadsEncoder:
    """Encode rows and texts of the pool by their vectors."""

    wants_pixels = False

    def __init__(self, network: Heads, features: Features, device: torch.device) -> None:
        self.network = network.to(device)
        self._features = features
        self._device = device

    def pairs(self, places: Places, pixels: "Tensor | None" = None) -> "Tensor":
        """Return ``(B, width + 1)`` unit vectors; ``pixels`` are not looked at."""
        del pixels
        return self.network.pairs(torch.from_numpy(self._features.pairs(places)).to(self._device))

    def texts(self, ids: Places) -> "Tensor":
        """Return ``(N, width + 1)`` unit vectors."""
        return self.network.texts(torch.from_numpy(self._features.words(ids)).to(self._device))

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Return what an optimiser trains, with its rate."""
        return [{"params": list(self.network.parameters()), "lr": rate}]

    @property
    def about(self) -> dict[str, str]:
        """Say what is needed to make the same network again."""
        image_size, text_size = self._features.sizes
        return {
            "encoder": "heads",
            "image_size": str(image_size),
            "text_size": str(text_size),
            "width": str(self.network.text.out_features),
            "vectors": self._features.made_by,
        }
