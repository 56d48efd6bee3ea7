"""NAMC as a whole (paper 001, Figure 2): noise is masked, masked places are reconstructed, differences are described.

Pre-training on a table of differences goes through all three modules; fine-tuning on people's captions, which are taken
to be clean, and inference need only the images' grid features: no masks, no CLIP.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from torch import nn

from pairwright.tasks.models.namc.describe import Decoding, Describer
from pairwright.tasks.models.namc.noise import (
    NO_WORD,
    Draw,
    Masks,
    NoiseIdentifier,
    ReadText,
    Relevance,
    SeenImage,
    draw_masks,
    on_tokens,
)
from pairwright.tasks.models.namc.reconstruct import MaskedImageEncoder
from pairwright.tasks.models.namc.sizes import NamcSizes

if TYPE_CHECKING:
    from torch import Tensor, device


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
    relevant: "Tensor | None" = None
    """``(B, 2, places + L)``: how relevant each place and each token of a half is, found before the training; ``None``:
    CLIP says so as it learns."""

    def some(self, start: int, stop: int) -> "Described":
        """Return these of its rows."""
        return self._each(lambda tensor: tensor[start:stop])

    def to(self, device: "device") -> "Described":
        """Return it on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: "Callable[[Tensor], Tensor]") -> "Described":
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return Described(**{name: change(tensor) for name, tensor in tensors.items() if tensor is not None})


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

    def mask(self, batch: Described, draw: Draw) -> Masks:
        """Return what to mask; the seeds of ``draw`` are of all first images, then of all second ones.

        Raises:
            ValueError: the model has no module that finds noise.
        """
        pixels, tokens, words = (_one_side_first(one) for one in (batch.pixels, batch.tokens, batch.words))
        if batch.relevant is None:
            return self._identifier().mask(pixels, tokens, words, draw)
        relevant, places = _one_side_first(batch.relevant), batch.features.shape[2]
        return draw_masks(Relevance(relevant[:, :places], relevant[:, places:]), words, draw)

    def encode(self, batch: Described, masks: Masks) -> tuple[SeenImage, ReadText]:
        """Return denoised images and halves in CLIP's space, all first ones before all second ones.

        Raises:
            ValueError: the model has no module that finds noise.
        """
        noise, (tokens, words) = self._identifier(), (_one_side_first(one) for one in (batch.tokens, batch.words))
        seen = noise.see(_one_side_first(batch.pixels), masks.patches)
        return seen, noise.read(tokens, on_tokens(masks.words, words))

    def denoise(self, batch: Described, masks: Masks, *, mask_token: int) -> Denoised:
        """Run pre-training's forward pass.

        Args:
            batch: what is learnt from.
            masks: what of it is masked.
            mask_token: stands for a masked word in the decoder's vocabulary.

        Raises:
            ValueError: the model has no module that finds noise.
        """
        seen, read = self.encode(batch, masks)
        features, tokens = _one_side_first(batch.features), _one_side_first(batch.tokens)
        first, second = masks.patches.chunk(2)
        compared = self.encoder.interact(features.chunk(2), (first, second))
        hidden = hidden_tokens(masks, batch)
        shown = batch.written.masked_fill(hidden, mask_token)
        text = self._identifier().to_width(read.hidden)
        return Denoised(
            images=seen.whole,
            texts=read.whole,
            codes=self.encoder.reconstruct(features, masks.patches, text, _real(tokens)),
            masked=masks.patches,
            next_tokens=self.describer(shown[:, :-1], compared),
            hidden=hidden,
        )

    def _identifier(self) -> NoiseIdentifier:
        if self.noise is None:
            raise ValueError("a NAMC without its noise module cannot be pre-trained")
        return self.noise

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


def hidden_tokens(masks: Masks, batch: Described) -> "Tensor":
    """Return ``(B, T)``: which of the decoder's tokens are of masked words."""
    from torch import cat

    both = cat(masks.words.chunk(2), dim=1)  # (B, 2 L): the second half's words come after the first's
    return both.gather(1, batch.numbers.clamp(min=0)) & (batch.numbers != NO_WORD)


def _one_side_first(both: "Tensor") -> "Tensor":
    """Return ``(2 B, ...)`` of ``(B, 2, ...)``: all first ones, then all second ones."""
    return both.transpose(0, 1).flatten(0, 1)


def _real(tokens: "Tensor") -> "Tensor":
    """Return ``(B, L)``: which tokens are no padding: up to the end, which has the highest number."""
    from torch import arange

    return arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(1, keepdim=True)
