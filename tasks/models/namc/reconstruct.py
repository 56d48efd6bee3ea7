"""MIR: what masked places of an image were, and what changed between two images (paper 001, 3.2.2).

Grid features of a CNN come in; masked places hold a learned vector. The same two layers do two things. *Reconstruct*:
one image, masked places ask too, what is cross-attended is the denoised description; the outcome is a code of VQGAN per
place. *Interact*: two streams, each cross-attends to the other image, and nobody looks at masked places; both streams
are joined to one token per place.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from pairwright.tasks.models.cross_attention import Layers, visible
from pairwright.tasks.models.namc.sizes import NamcSizes

if TYPE_CHECKING:
    from torch import Tensor


class MaskedImageEncoder(nn.Module):
    """Reconstruct images, and compare them."""

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        width = sizes.width
        self.masked_place = nn.Parameter(torch.randn(sizes.features) * 0.02)
        self.to_width = nn.Linear(sizes.features, width)  # a convolution with a kernel of one
        self.positions = nn.Parameter(torch.randn(sizes.places, width) * 0.02)
        self.layers = Layers(sizes.layers, width, sizes.heads, dropout=sizes.dropout)
        self.norm = nn.LayerNorm(width)
        self.to_codes = nn.Linear(width, sizes.codes)
        self.join = nn.Linear(2 * width, width)

    def reconstruct(self, features: "Tensor", masked: "Tensor", text: "Tensor", read: "Tensor") -> "Tensor":
        """Return ``(B, places, codes)`` logits of what each place was.

        Args:
            features: ``(B, places, features)``.
            masked: ``(B, places)`` bool.
            text: ``(B, L, width)``, the denoised description.
            read: ``(B, L)`` bool, which of its tokens are no padding; at least one per row.
        """
        tokens = self._embed(features, masked)
        for layer in self.layers:
            tokens = layer.finish(layer.look(tokens), layer.other.see(text), allowed=read)
        return self.to_codes(self.norm(tokens))

    def interact(self, images: "Sequence[Tensor]", masked: "Sequence[Tensor | None]") -> "Tensor":
        """Return ``(B, places, width)``: what the two images have to do with each other.

        Args:
            images: the grid features of both, ``(B, places, features)``.
            masked: ``(B, places)`` bool of each, or ``None``: nothing is.
        """
        streams = [self._embed(image, mask) for image, mask in zip(images, masked, strict=True)]
        allowed = [None if mask is None else visible(mask) for mask in masked]
        for layer in self.layers:
            asked = [layer.look(own, allowed=mask) for own, mask in zip(streams, allowed, strict=True)]
            seen = [layer.other.see(one) for one in asked]
            pairs = ((0, 1), (1, 0))
            streams = [layer.finish(asked[own], seen[other], allowed=allowed[other]) for own, other in pairs]
        return self.join(torch.cat([self.norm(one) for one in streams], dim=-1))

    def _embed(self, features: "Tensor", masked: "Tensor | None") -> "Tensor":
        features = features.to(self.masked_place.dtype)  # tables hold float16
        if masked is not None:
            features = torch.where(masked[..., None], self.masked_place, features)
        return self.to_width(features) + self.positions
