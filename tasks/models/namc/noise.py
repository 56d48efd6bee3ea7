"""NIM: which patches and which words do not belong together, by CLIP's own tokens (paper 001, 3.2.1).

A CLIP of open_clip encodes image and description. A patch's relevance is its highest cosine with a word's token, in the
projected space (Eq. 1; the towers differ in width), a word's the highest of its pieces' with a patch. What is less
relevant than the mean is masked more often than the given share, by draws that depend on the row alone; masked patches
and words become a learned vector each. Start, end and padding are no words: they are never masked and in no mean.

The masks are drawn by what a pass without gradient found, or by what was found before the training; another pass
encodes what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.open_clip_embedder import has_class_token

if TYPE_CHECKING:
    from torch import Tensor

NO_WORD = -1
"""Stands for tokens that belong to no word."""
SPREAD = 0.02
"""Standard deviation of fresh vectors, as BERT's."""


@dataclass(frozen=True, slots=True)
class SeenImage:
    """Hold an image in the projected space: ``(B, e)`` as a whole and ``(B, patches, e)``."""

    whole: "Tensor"
    patches: "Tensor"


@dataclass(frozen=True, slots=True)
class ReadText:
    """Hold a text in the projected space, ``(B, e)`` and ``(B, tokens, e)``, and the tower's ``(B, tokens, w)``."""

    whole: "Tensor"
    tokens: "Tensor"
    hidden: "Tensor"


@dataclass(frozen=True, slots=True)
class Masks:
    """Say what is masked: ``(B, patches)`` and ``(B, words)``, bool."""

    patches: "Tensor"
    words: "Tensor"


@dataclass(frozen=True, slots=True)
class Relevance:
    """Hold how relevant each patch ``(B, patches)`` and each token of a text ``(B, L)`` is."""

    patches: "Tensor"
    tokens: "Tensor"


class NoiseIdentifier(nn.Module):
    """Mask what does not fit, and encode the rest; ``clip`` is a model of open_clip."""

    def __init__(self, clip: Any, *, width: int) -> None:
        """Add the vectors that stand for what is masked, and the map of CLIP's text tower to ``width``.

        Raises:
            ModelError: a tower is not of CLIP's form.
        """
        super().__init__()
        _check(clip)
        self.clip = clip
        self.masked_patch = nn.Parameter(torch.randn(clip.visual.conv1.out_channels) * SPREAD)
        self.masked_word = nn.Parameter(torch.randn(clip.token_embedding.embedding_dim) * SPREAD)
        self.to_width = nn.Linear(clip.token_embedding.embedding_dim, width)

    def see(self, pixels: "Tensor", masked: "Tensor | None" = None) -> SeenImage:
        """Encode ``(B, 3, h, w)`` pixels, of which ``masked`` (B, patches) are not seen."""
        visual = self.clip.visual
        patches = visual.conv1(pixels).flatten(2).transpose(1, 2)
        if masked is not None:
            patches = torch.where(masked[..., None], self.masked_patch.to(patches.dtype), patches)
        start = visual.class_embedding.to(patches.dtype).expand(len(patches), 1, -1)
        tokens = torch.cat([start, patches], dim=1) + visual.positional_embedding.to(patches.dtype)
        seen = visual.ln_post(visual.transformer(visual.ln_pre(tokens))) @ visual.proj
        return SeenImage(seen[:, 0], seen[:, 1:])

    def read(self, tokens: "Tensor", masked: "Tensor | None" = None) -> ReadText:
        """Encode ``(B, L)`` tokens, of which ``masked`` (B, L) are not read; 0 behind the longest text's end."""
        clip, ends = self.clip, tokens.argmax(1)  # the mark of the end has the highest number
        longest = int(ends.max()) + 1  # nothing looks at what comes later, and texts are a third of L
        embedded = clip.token_embedding(tokens[:, :longest])
        if masked is not None:
            embedded = torch.where(masked[:, :longest, None], self.masked_word.to(embedded.dtype), embedded)
        attended = clip.attn_mask[:longest, :longest]
        hidden = clip.transformer(embedded + clip.positional_embedding[:longest], attn_mask=attended)
        hidden = functional.pad(clip.ln_final(hidden), (0, 0, 0, tokens.shape[1] - longest))
        projected = hidden @ clip.text_projection
        return ReadText(projected[torch.arange(len(tokens)), ends], projected, hidden)

    @torch.no_grad()
    def relevance(self, pixels: "Tensor", tokens: "Tensor", words: "Tensor") -> Relevance:
        """Return how images ``(B, 3, h, w)`` and their texts belong together by CLIP as it is now.

        Args:
            pixels: of the images.
            tokens: ``(B, L)``.
            words: ``(B, L)``, the number of the word that a token belongs to, or ``NO_WORD``.
        """
        return Relevance(*relevance(self.see(pixels).patches, self.read(tokens).tokens, words != NO_WORD))

    def mask(self, pixels: "Tensor", tokens: "Tensor", words: "Tensor", draw: "Draw") -> Masks:
        """Return what to mask of images and their descriptions, by CLIP as it is now."""
        return draw_masks(self.relevance(pixels, tokens, words), words, draw)


def draw_masks(found: Relevance, words: "Tensor", draw: "Draw") -> Masks:
    """Return what to mask of images and their descriptions.

    Args:
        found: how relevant everything is.
        words: ``(B, L)``, the number of the word that a token belongs to, or ``NO_WORD``.
        draw: how much, and by which numbers.
    """
    patches = found.patches
    whole, real = relevance_of_words(found.tokens, words)
    every = torch.ones_like(patches, dtype=torch.bool)
    numbers = draw.numbers(patches.shape[1], words.shape[1]).to(patches.device)
    images = mask_probabilities(patches, draw.image_share, every)
    texts = mask_probabilities(whole, draw.text_share, real)
    return Masks(numbers[:, : patches.shape[1]] < images, numbers[:, patches.shape[1] :] < texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Say how masks are drawn: the shares p_I and p_T, and a seed per row, so that no row depends on its neighbours."""

    seeds: Sequence[int]
    image_share: float = 0.2
    text_share: float = 0.15

    def numbers(self, patches: int, words: int) -> "Tensor":
        """Return ``(B, patches + words)`` numbers in [0, 1)."""
        rows = [np.random.Generator(np.random.Philox(key=seed)).random(patches + words) for seed in self.seeds]
        return torch.from_numpy(np.stack(rows)).float()


def relevance(patches: "Tensor", tokens: "Tensor", real: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return how relevant each patch ``(B, patches)`` and each token ``(B, L)`` is: its highest cosine (Eq. 1).

    Args:
        patches: ``(B, patches, e)``.
        tokens: ``(B, L, e)``.
        real: ``(B, L)`` bool, which tokens are of words. Without any, every patch has relevance 0.
    """
    cosines = functional.normalize(patches, dim=-1) @ functional.normalize(tokens, dim=-1).transpose(1, 2)
    seen = cosines.masked_fill(~real[:, None], -torch.inf).amax(2)
    return seen.where(real.any(1, keepdim=True), 0), cosines.amax(1)


def relevance_of_words(tokens: "Tensor", words: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return per word number ``(B, L)`` the highest relevance of its tokens, and which numbers there are.

    Args:
        tokens: ``(B, L)`` relevance.
        words: ``(B, L)`` numbers of words below L, or ``NO_WORD``.
    """
    none = torch.full((len(tokens), tokens.shape[1] + 1), -torch.inf, dtype=tokens.dtype, device=tokens.device)
    found = none.scatter_reduce(1, words + 1, tokens, "amax")[:, 1:]  # what is of no word goes to a place of its own
    real = found > -torch.inf
    return found.where(real, 0), real


def mask_probabilities(relevant: "Tensor", share: float, real: "Tensor") -> "Tensor":
    """Return P = p + IR - mean(IR), IR = 1 - relevance, held within [0, 1]; 0 and in no mean where not ``real``.

    The paper's P can leave [0, 1]; where it does, less than ``share`` is masked on average, or more.
    """
    irrelevant = (1 - relevant).where(real, 0)
    mean = irrelevant.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
    return (share + irrelevant - mean).clamp(0, 1).where(real, 0)


def on_tokens(masked: "Tensor", words: "Tensor") -> "Tensor":
    """Return ``(B, L)``: which tokens are of masked words ``(B, words)``; no start, end or padding is."""
    return masked.gather(1, words.clamp(min=0)) & (words != NO_WORD)


def _check(clip: Any) -> None:
    """Refuse towers whose tokens cannot be masked here.

    Raises:
        ModelError: what is not as CLIP has it.
    """
    if not has_class_token(clip.visual):
        kind = type(clip.visual).__name__
        raise ModelError(f"NAMC masks patches of a vision transformer of CLIP's form, not of a {kind}")
    if getattr(clip, "text_pool_type", "") != "argmax" or not isinstance(clip.text_projection, torch.Tensor):
        raise ModelError("NAMC masks words of a text tower of CLIP's own form; this model's ends differently")
