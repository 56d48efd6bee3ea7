"""NAMC, a captioner of image differences trained from scratch (paper 001, Figure 2), and its losses.

NIM, ``NoiseIdentifier``: mismatched patches and words, by CLIP's own tokens (3.2.1). MIR,
``MaskedImageEncoder``: the contents of masked places, and the change between two images (3.2.2).
FDG, ``Describer``: a description of the change (3.2.3). Pre-training on a table of differences uses
all three; fine-tuning on people's captions, which are taken to be clean, and inference need only
the images' grid features: no masks, no CLIP.

Shapes: B pairs of images, ``places`` of a grid, L tokens of a half for CLIP, T tokens of a
description for the decoder; 2 B: all first images or halves, then all second ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import NamcConfig
from pairwright.tasks.models.cross_attention import KeysValues, Layers, visible
from pairwright.tasks.models.open_clip_embedder import has_class_token

NO_WORD = -1  # word number of tokens outside words
SPREAD = 0.02  # standard deviation of initial vectors, as BERT's
TEMPERATURE = 0.02
EPSILON = 1e-8  # IRRA's values (Jiang and Ye 2023); NAMC does not print its own
IGNORED = -100  # label of targets without loss
Count = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamcSizes:
    """Sizes of the masked image encoder and the decoder; the defaults are the paper's (64.2 M weights, CLIP aside)."""

    width: Count = 768
    heads: Count = 12
    layers: Annotated[int, Field(ge=1, le=100)] = 2  # of the encoder, and of the decoder
    places: Count = (
        196  # of an image's grid, 14 x 14, for CLIP's patches, the CNN's features and VQGAN's codes
    )
    features: Count = 1024  # channels of the CNN: ResNet-101, third stage
    codes: Count = 1024  # in VQGAN's codebook
    vocabulary: Count = 30_522  # of the decoder: BERT's
    # maximum tokens of a description; the paper's 23 suit its benchmarks, not its own template
    length: Count = 80
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.1


# --- NIM: noise identification and masking
# ---------------------------------------------------------------------------


class NoiseIdentifier(nn.Module):
    """Encoder of masked images and texts; ``clip`` is a model of open_clip.

    Masked patches and words become one learned vector each; ``to_width`` maps the text tower's
    tokens to the decoder's width.
    """

    def __init__(self, clip: Any, *, width: int) -> None:
        super().__init__()
        own_text = getattr(clip, "text_pool_type", "") == "argmax" and isinstance(
            clip.text_projection, Tensor
        )
        if not (has_class_token(clip.visual) and own_text):
            raise ModelError(
                "namc.clip: NAMC needs two transformer towers of CLIP's form; choose another model"
            )
        self.clip = clip
        self.masked_patch = nn.Parameter(torch.randn(clip.visual.conv1.out_channels) * SPREAD)
        self.masked_word = nn.Parameter(torch.randn(clip.token_embedding.embedding_dim) * SPREAD)
        self.to_width = nn.Linear(clip.token_embedding.embedding_dim, width)

    def see(self, pixels: Tensor, masked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return images ``(B, 3, h, w)`` in CLIP's projected space: ``(B, e)`` as a whole, and ``(B, patches, e)``.

        ``masked``, ``(B, patches)`` bool, hides patches.
        """
        visual = self.clip.visual
        patches = visual.conv1(pixels).flatten(2).transpose(1, 2)
        if masked is not None:
            patches = torch.where(masked[..., None], self.masked_patch.to(patches.dtype), patches)
        start = visual.class_embedding.to(patches.dtype).expand(len(patches), 1, -1)
        tokens = torch.cat([start, patches], dim=1) + visual.positional_embedding.to(patches.dtype)
        seen = visual.ln_post(visual.transformer(visual.ln_pre(tokens))) @ visual.proj
        return seen[:, 0], seen[:, 1:]

    def read(self, tokens: Tensor, masked: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return texts in CLIP's projected space, ``(B, e)`` and ``(B, L, e)``, and the tower's own ``(B, L, w)``.

        ``tokens``, ``(B, L)``, are 0 after the end token; ``masked``, ``(B, L)`` bool, hides
        tokens.
        """
        clip, ends = self.clip, tokens.argmax(1)  # the end token has the highest id
        longest = int(ends.max()) + 1  # causal attention; texts fill a third of L
        embedded = clip.token_embedding(tokens[:, :longest])
        if masked is not None:
            embedded = torch.where(
                masked[:, :longest, None], self.masked_word.to(embedded.dtype), embedded
            )
        attended = clip.attn_mask[:longest, :longest]
        hidden = clip.transformer(
            embedded + clip.positional_embedding[:longest], attn_mask=attended
        )
        hidden = functional.pad(clip.ln_final(hidden), (0, 0, 0, tokens.shape[1] - longest))
        projected = hidden @ clip.text_projection
        return projected[torch.arange(len(tokens)), ends], projected, hidden

    @torch.no_grad()
    def draw_masks(
        self, pixels: Tensor, tokens: Tensor, words: Tensor, *, shares: tuple[float, float]
    ) -> tuple[Tensor, Tensor]:
        """Return which patches and which words to mask, ``(B, patches)`` and ``(B, L)``, by the current CLIP.

        ``words``, ``(B, L)``, are the tokens' word numbers; ``shares`` are p_I and p_T, the mean
        shares of masked patches and words.
        """
        patches, pieces = relevance(self.see(pixels)[1], self.read(tokens)[1], words != NO_WORD)
        whole, real = relevance_of_words(pieces, words)
        images = mask_probabilities(patches, shares[0], torch.ones_like(patches, dtype=torch.bool))
        texts = mask_probabilities(whole, shares[1], real)
        return torch.rand_like(images) < images, torch.rand_like(texts) < texts


def relevance(patches: Tensor, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return the relevance of each patch ``(B, patches)`` and token ``(B, L)``: its highest cosine (Eq. 1).

    Inputs are ``(B, patches, e)`` and ``(B, L, e)`` in the projected space, since the towers differ
    in width. ``real``, ``(B, L)`` bool: tokens of words, not start, end and padding; without any,
    patches have relevance 0.
    """
    cosines = (
        functional.normalize(patches, dim=-1) @ functional.normalize(tokens, dim=-1).mT
    ).float()
    seen = cosines.masked_fill(~real[:, None], -torch.inf).amax(2)
    return seen.where(real.any(1, keepdim=True), 0), cosines.amax(1)


def relevance_of_words(tokens: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return the relevance of each word ``(B, L)``, the highest of its tokens', and which word numbers exist.

    ``words``, ``(B, L)``: word numbers below L, or ``NO_WORD``.
    """
    none = torch.full(
        (len(tokens), tokens.shape[1] + 1), -torch.inf, dtype=tokens.dtype, device=tokens.device
    )
    found = none.scatter_reduce(1, words + 1, tokens, "amax")[:, 1:]  # NO_WORD goes to column 0
    real = found > -torch.inf
    return found.where(real, 0), real


def mask_probabilities(relevant: Tensor, share: float, real: Tensor) -> Tensor:
    """Return P = p + IR - mean(IR), IR = 1 - relevance, clamped to [0, 1]; 0 and outside the mean where not ``real``.

    The paper's P can leave [0, 1]; clamping then changes the mean masked share.
    """
    irrelevant = (1 - relevant).where(real, 0)
    mean = irrelevant.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
    return (share + irrelevant - mean).clamp(0, 1).where(real, 0)


def mask_tokens(masked: Tensor, words: Tensor) -> Tensor:
    """Return which tokens belong to masked words ``(B, words)``; never start, end or padding."""
    return masked.gather(1, words.clamp(min=0)) & (words != NO_WORD)


# --- MIR: masked image reconstruction, and comparison of two images
# ---------------------------------------------------


class MaskedImageEncoder(nn.Module):
    """Encoder that reconstructs images and compares them; masked places hold a learned vector.

    The same layers do both. *Reconstruct*: one image, masked places included, cross-attends to the
    denoised description. *Interact*: two streams, each cross-attends to the other image without its
    masked places.
    """

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        width = sizes.width
        self.masked_place = nn.Parameter(torch.randn(sizes.features) * SPREAD)
        self.to_width = nn.Linear(sizes.features, width)  # a convolution with a kernel of one
        self.positions = nn.Parameter(torch.randn(sizes.places, width) * SPREAD)
        self.layers = Layers(sizes.layers, width, sizes.heads, dropout=sizes.dropout)
        self.norm = nn.LayerNorm(width)
        self.to_codes = nn.Linear(width, sizes.codes)
        self.join = nn.Linear(2 * width, width)

    def reconstruct(self, features: Tensor, masked: Tensor, text: Tensor, read: Tensor) -> Tensor:
        """Return ``(B, places, codes)`` logits of each place's code, masked where ``(B, places)``.

        ``text`` is the denoised description, ``(B, L, width)``; ``read``, ``(B, L)`` bool, marks
        its tokens without padding, at least one per row.
        """
        tokens = self._embed(features, masked)
        for layer in self.layers:
            tokens = layer.finish(layer.look(tokens), layer.other.see(text), allowed=read)
        return self.to_codes(self.norm(tokens))

    def interact(self, images: Sequence[Tensor], masked: Sequence[Tensor | None]) -> Tensor:
        """Return ``(B, places, width)``: the comparison of two images.

        ``images``: grid features of both, ``(B, places, features)``; ``masked``: ``(B, places)``
        bool of each, or ``None``.
        """
        streams = [self._embed(image, mask) for image, mask in zip(images, masked, strict=True)]
        allowed = [None if mask is None else visible(mask) for mask in masked]
        for layer in self.layers:
            asked = [
                layer.look(own, allowed=mask) for own, mask in zip(streams, allowed, strict=True)
            ]
            seen = [layer.other.see(one) for one in asked]
            pairs = ((0, 1), (1, 0))
            streams = [
                layer.finish(asked[own], seen[other], allowed=allowed[other])
                for own, other in pairs
            ]
        return self.join(torch.cat([self.norm(one) for one in streams], dim=-1))

    def _embed(self, features: Tensor, masked: Tensor | None) -> Tensor:
        features = features.to(self.masked_place.dtype)  # tables hold float16
        if masked is not None:
            features = torch.where(masked[..., None], self.masked_place, features)
        return self.to_width(features) + self.positions


# --- FDG: descriptions, a token at a time
# -----------------------------------------------------------------------------


class Describer(nn.Module):
    """Decoder from a comparison to text, with tied embeddings."""

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.words.weight, std=SPREAD)
        self.positions = nn.Parameter(torch.randn(sizes.length, sizes.width) * SPREAD)
        self.layers = Layers(sizes.layers, sizes.width, sizes.heads, dropout=sizes.dropout)
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, tokens: Tensor, compared: Tensor) -> Tensor:
        """Return ``(B, T, vocabulary)`` logits of the token after each of ``(B, T)`` tokens.

        ``compared``: ``(B, places, width)``, of ``MaskedImageEncoder.interact``.
        """
        found = self.words(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            found = layer.finish(layer.look(found, causal=True), layer.other.see(compared))
        return self._score(found)

    @torch.no_grad()
    def write(
        self, compared: Tensor, *, start: int, end: int, banned: Sequence[int], length: int = 23
    ) -> list[list[int]]:
        """Return each row's greedy description as tokens, without start and end, with a key-value cache.

        ``start`` and ``end`` are BERT's ``[CLS]`` and ``[SEP]``; ``banned`` tokens are never
        written: ``[MASK]``, ``[PAD]``, ``[UNK]``; ``length``: maximum tokens, the end included.
        """
        shown = [layer.other.see(compared) for layer in self.layers]
        before: list[KeysValues | None] = [None for _ in self.layers]
        last = torch.full((len(compared),), start, device=compared.device)
        said: list[Tensor] = []
        ended = torch.zeros_like(last, dtype=torch.bool)
        for position in self.positions[:length]:
            found = self.words(last)[:, None] + position
            for number, layer in enumerate(self.layers):
                found, before[number] = layer.look_back(found, before[number])
                found = layer.finish(found, shown[number])
            logits = self._score(found)[:, 0]
            logits[:, list(banned)] = -torch.inf
            last = logits.argmax(1).masked_fill(ended, end)
            ended |= last == end
            said.append(last)
            if ended.all():
                break
        return [[token for token in row if token != end] for row in torch.stack(said, 1).tolist()]

    def _score(self, found: Tensor) -> Tensor:
        return self.norm(found) @ self.words.weight.T


# --- The whole
# --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Batch of B pairs of images with descriptions; dimension 1 is the first and the second image."""

    features: Tensor  # ``(B, 2, places, features)``
    pixels: Tensor  # ``(B, 2, 3, h, w)``, CLIP's input; empty where not needed
    codes: Tensor  # ``(B, 2, places)``: targets of masked places
    tokens: Tensor  # ``(B, 2, L)``: CLIP's tokens of each half
    words: Tensor  # ``(B, 2, L)``: the number of each token's word, or ``NO_WORD``
    texts: Tensor  # ``(B, 2)``: equal numbers for equal halves
    written: Tensor  # ``(B, T)``: the decoder's tokens, start and end included, padded
    # ``(B, T)``: the number of each token's word, of the second half from L on, or ``NO_WORD``
    numbers: Tensor

    def to(self, device: torch.device) -> "Described":
        """Return it on a device."""
        return Described(
            **{
                one.name: getattr(self, one.name).to(device, non_blocking=True)
                for one in fields(self)
            }
        )


class Namc(nn.Module):
    """NAMC; ``noise`` is absent after pre-training."""

    def __init__(self, sizes: NamcSizes, noise: NoiseIdentifier | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.noise = noise
        self.encoder = MaskedImageEncoder(sizes)
        self.describer = Describer(sizes)

    def pretrain(
        self, batch: Described, config: NamcConfig, *, pad: int, mask: int
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the three losses of Eq. 2, and the masked shares of places and words.

        ``pad`` and ``mask`` are the decoder's padding and mask tokens; masked words have no loss.
        """
        noise = self.noise
        assert noise is not None
        pixels, features = by_side(batch.pixels), by_side(batch.features)
        tokens, words = by_side(batch.tokens), by_side(batch.words)
        shares = (config.image_mask_ratio, config.text_mask_ratio)
        masked, masked_words = noise.draw_masks(pixels, tokens, words, shares=shares)
        images, _ = noise.see(pixels, masked)
        texts, _, text = noise.read(tokens, mask_tokens(masked_words, words))
        # (B, 2 L): words of the first half, then of the second.
        hidden = mask_tokens(torch.cat(masked_words.chunk(2), dim=1), batch.numbers)
        written = self.describer(
            batch.written.masked_fill(hidden, mask)[:, :-1],
            self.encoder.interact(features.chunk(2), masked.chunk(2)),
        )
        labels = batch.written.masked_fill((batch.written == pad) | hidden, IGNORED)
        # Not padding: up to the end token, which has the highest id.
        real = torch.arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(1, keepdim=True)
        sides = zip(images.chunk(2), texts.chunk(2), batch.texts.unbind(1), strict=True)
        losses = {
            "alignment": torch.stack([alignment_loss(*side) for side in sides]).sum(),
            "description": prediction_loss(written, labels[:, 1:]),
        }
        if config.reconstruction_enabled:
            codes = self.encoder.reconstruct(features, masked, noise.to_width(text), real)
            # The paper's Eq. 18 sums over all places, its text says masked ones; the text is
            # followed.
            losses["reconstruction"] = prediction_loss(
                codes, by_side(batch.codes).masked_fill(~masked, IGNORED)
            )
        count = (batch.numbers != NO_WORD).sum()
        return losses, {"places": masked.float().mean(), "words": hidden.sum() / count.clamp(min=1)}

    def forward(self, features: Tensor, written: Tensor, *, pad: int) -> Tensor:
        """Return the loss of describing clean images, ``(B, 2, places, features)``, by ``(B, T)`` tokens."""
        logits = self.describer(written[:, :-1], self.compare(features))
        return prediction_loss(logits, written[:, 1:].masked_fill(written[:, 1:] == pad, IGNORED))

    def compare(self, features: Tensor) -> Tensor:
        """Return ``(B, places, width)`` of ``(B, 2, places, features)``, unmasked."""
        return self.encoder.interact(features.unbind(1), (None, None))


def by_side(both: Tensor) -> Tensor:
    """Return ``(2 B, ...)`` of ``(B, 2, ...)``: all first ones, then all second ones."""
    return both.transpose(0, 1).flatten(0, 1)


# --- Losses (3.3 and Appendix E)
# --------------------------------------------------------------------------------------


def alignment_loss(images: Tensor, texts: Tensor, identity: Tensor) -> Tensor:
    """Return IRRA's similarity distribution matching, both directions, averaged over the batch.

    KL(p || q) of p, the softmax over cosines / 0.02, and q, uniform over equal texts: repeated
    texts in a batch are no false negatives. ``identity``, ``(B,)``, is equal for equal texts;
    images and texts are ``(B, e)``. Always float32: cosines in bfloat16 are off by 0.002, logits by
    0.1.
    """
    with torch.autocast(images.device.type, enabled=False):
        cosines = (
            functional.normalize(images.float(), dim=-1)
            @ functional.normalize(texts.float(), dim=-1).T
        )
    same = (identity[:, None] == identity).float()
    wanted = same / same.sum(1, keepdim=True)  # for both directions, as equality is symmetric
    directions = [
        logits.log_softmax(1) for logits in (cosines / TEMPERATURE, cosines.T / TEMPERATURE)
    ]
    return torch.stack(
        [(logs.exp() * (logs - (wanted + EPSILON).log())).sum(1).mean() for logs in directions]
    ).sum()


def prediction_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of tokens or codes; 0 without targets.

    ``logits``: ``(B, T, kinds)``; ``labels``: ``(B, T)``, ``IGNORED`` where they do not count.
    """
    flat = logits.float().flatten(0, 1)
    losses = functional.cross_entropy(flat, labels.flatten(), reduction="sum", ignore_index=IGNORED)
    return losses / (labels != IGNORED).sum().clamp(min=1)
