"""NAMC as a whole (paper 001, Figure 2): noise is masked, masked places are reconstructed, differences are described.

Pre-training on a table of differences goes through all three modules; fine-tuning on people's captions, which are taken
to be clean, and inference need only the images' grid features: no masks, no CLIP.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from tasks.models.namc.describe import Decoding, Describer
from tasks.models.namc.noise import NO_WORD, Draw, NoiseIdentifier, on_tokens
from tasks.models.namc.reconstruct import MaskedImageEncoder
from tasks.models.namc.sizes import NamcSizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Hold pairs of images, the halves of their descriptions, and the descriptions; dimension 1 is first and second."""

    pixels: "Tensor"
    """``(B, 2, 3, h, w)``, as CLIP prepares them."""
    features: "Tensor"
    """``(B, 2, places, features)``."""
    codes: "Tensor"
    """``(B, 2, places)``: what a masked place is to be told as."""
    tokens: "Tensor"
    """``(B, 2, L)``: what CLIP reads of each half."""
    words: "Tensor"
    """``(B, 2, L)``: the word of each token, or ``NO_WORD``."""
    written: "Tensor"
    """``(B, T)``: the whole in the decoder's tokens, start and end included; then padding."""
    numbers: "Tensor"
    """``(B, T)``: the word of each token, those of the second half numbered from L on, or ``NO_WORD``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoised:
    """Hold what pre-training's losses are made of; rows of first images come before those of second ones."""

    images: "Tensor"
    """``(2 B, e)``: denoised images in CLIP's space."""
    texts: "Tensor"
    """``(2 B, e)``: denoised halves."""
    codes: "Tensor"
    """``(2 B, places, codes)``: logits of what each place was."""
    masked: "Tensor"
    """``(2 B, places)`` bool."""
    next_tokens: "Tensor"
    """``(B, T - 1, vocabulary)``: logits of what follows each token."""
    hidden: "Tensor"
    """``(B, T)`` bool: tokens of masked words."""


class Namc(nn.Module):
    """Be the model; ``noise`` is left out where it is not pre-trained any more."""

    def __init__(self, sizes: NamcSizes, noise: NoiseIdentifier | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.noise = noise
        self.encoder = MaskedImageEncoder(sizes)
        self.describer = Describer(sizes)

    def denoise(self, batch: Described, draw: Draw, *, mask_token: int) -> Denoised:
        """Run pre-training's forward pass.

        Args:
            batch: what is learnt from.
            draw: how much is masked; its seeds are of all first images, then of all second ones.
            mask_token: stands for a masked word in the decoder's vocabulary.

        Raises:
            ValueError: the model has no module that finds noise.
        """
        if self.noise is None:
            raise ValueError("a NAMC without its noise module cannot be pre-trained")
        pixels, tokens, words, features = (
            one.transpose(0, 1).flatten(0, 1) for one in (batch.pixels, batch.tokens, batch.words, batch.features)
        )
        masks = self.noise.mask(pixels, tokens, words, draw)
        seen = self.noise.see(pixels, masks.patches)
        read = self.noise.read(tokens, on_tokens(masks.words, words))
        first, second = masks.patches.chunk(2)
        compared = self.encoder.interact(features.chunk(2), (first, second))
        hidden = _hidden(masks.words, batch.numbers)
        shown = batch.written.masked_fill(hidden, mask_token)
        return Denoised(
            images=seen.whole,
            texts=read.whole,
            codes=self.encoder.reconstruct(features, masks.patches, self.noise.to_width(read.hidden), _real(tokens)),
            masked=masks.patches,
            next_tokens=self.describer(shown[:, :-1], compared),
            hidden=hidden,
        )

    def forward(self, features: "Tensor", written: "Tensor") -> "Tensor":
        """Return ``(B, T - 1, vocabulary)`` logits of what follows each token, from clean images.

        Args:
            features: ``(B, 2, places, features)``.
            written: ``(B, T)`` tokens.
        """
        return self.describer(written[:, :-1], self.compare(features))

    def compare(self, features: "Tensor") -> "Tensor":
        """Return ``(B, places, width)``: what both images have to do with each other, nothing masked."""
        return self.encoder.interact(features.unbind(1), (None, None))

    def write(self, features: "Tensor", how: Decoding) -> list[list[int]]:
        """Return descriptions of all pairs in one batched call, as the decoder's tokens."""
        return self.describer.write(self.compare(features), how)


def _hidden(words: "Tensor", numbers: "Tensor") -> "Tensor":
    """Return ``(B, T)``: which of the decoder's tokens are of masked words ``(2 B, L)``."""
    from torch import cat

    both = cat(words.chunk(2), dim=1)  # (B, 2 L): the second half's words come after the first's
    return both.gather(1, numbers.clamp(min=0)) & (numbers != NO_WORD)


def _real(tokens: "Tensor") -> "Tensor":
    """Return ``(B, L)``: which tokens are no padding: up to the end, which has the highest number."""
    from torch import arange

    return arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(1, keepdim=True)
