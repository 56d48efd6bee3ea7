"""NAMC, a captioner of image differences trained from scratch (paper 001, Figure 2).

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

NO_WORD = -1
"""Word number of tokens outside words."""
SPREAD = 0.02
"""Standard deviation of initial vectors, as BERT's."""
TEMPERATURE = 0.02
EPSILON = 1e-8
"""IRRA's values (Jiang and Ye 2023); NAMC does not print its own."""
IGNORED = -100
"""Label of targets without loss."""
Count = Annotated[int, Field(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamcSizes:
    """Sizes of the masked image encoder and the decoder.

    The defaults are the paper's: 64.2 M weights without CLIP.
    """

    width: Count = 768
    heads: Count = 12
    layers: Annotated[int, Field(ge=1, le=100)] = 2
    """Layers of the encoder, and of the decoder."""
    places: Count = 196
    """Positions of an image's grid, 14 x 14: CLIP's patches, the CNN's features, VQGAN's codes."""
    features: Count = 1024
    """Channels of the CNN: ResNet-101, third stage."""
    codes: Count = 1024
    """Codes in VQGAN's codebook."""
    vocabulary: Count = 30_522
    """Tokens of the decoder: BERT's."""
    length: Count = 80
    """Maximum tokens of a description; the paper's 23 suit its benchmarks, not its own template."""
    dropout: Annotated[float, Field(ge=0, le=1)] = 0.1


# --- NIM: noise identification and masking ---


class NoiseIdentifier(nn.Module):
    """Encoder of masked images and texts; ``clip`` is a model of open_clip.

    Masked patches and words become one learned vector each; ``to_width`` maps the text tower's
    tokens to the decoder's width.
    """

    def __init__(self, clip: Any, *, width: int) -> None:
        super().__init__()
        pools_end_token = getattr(clip, "text_pool_type", "") == "argmax"
        is_projected = isinstance(clip.text_projection, Tensor)
        if not (has_class_token(clip.visual) and pools_end_token and is_projected):
            raise ModelError(
                "namc.clip: NAMC needs two transformer towers of CLIP's form; choose another model"
            )
        self.clip = clip
        patch_width = clip.visual.conv1.out_channels
        word_width = clip.token_embedding.embedding_dim
        self.masked_patch = _initial_vectors(patch_width)
        self.masked_word = _initial_vectors(word_width)
        self.to_width = nn.Linear(word_width, width)

    def encode_images(
        self,
        pixels: Tensor,
        masked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return images ``(B, 3, h, w)`` in CLIP's projected space: ``(B, e)``, ``(B, p, e)``.

        The first is of the whole image, the second of p patches. ``masked``, ``(B, p)`` bool, hides
        patches.
        """
        visual = self.clip.visual
        patches = visual.conv1(pixels).flatten(2).transpose(1, 2)
        dtype = patches.dtype
        if masked is not None:
            masked_patch = self.masked_patch.to(dtype)
            patches = torch.where(masked[..., None], masked_patch, patches)
        class_token = visual.class_embedding.to(dtype)
        start = class_token.expand(len(patches), 1, -1)
        positions = visual.positional_embedding.to(dtype)
        tokens = torch.cat([start, patches], dim=1) + positions
        hidden = visual.transformer(visual.ln_pre(tokens))
        projected = visual.ln_post(hidden) @ visual.proj
        return projected[:, 0], projected[:, 1:]

    def encode_texts(
        self,
        tokens: Tensor,
        masked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return texts in CLIP's projected space, ``(B, e)`` and ``(B, L, e)``, and ``(B, L, w)``.

        The last is the tower's own. ``tokens``, ``(B, L)``, are 0 after the end token; ``masked``,
        ``(B, L)`` bool, hides tokens.
        """
        clip = self.clip
        ends = tokens.argmax(1)  # the end token has the highest id
        longest = int(ends.max()) + 1  # causal attention; texts fill a third of L
        embedded = clip.token_embedding(tokens[:, :longest])
        if masked is not None:
            masked_word = self.masked_word.to(embedded.dtype)
            is_masked = masked[:, :longest, None]
            embedded = torch.where(is_masked, masked_word, embedded)
        hidden = clip.transformer(
            embedded + clip.positional_embedding[:longest],
            attn_mask=clip.attn_mask[:longest, :longest],
        )
        padding = tokens.shape[1] - longest
        normed = clip.ln_final(hidden)
        hidden = functional.pad(normed, (0, 0, 0, padding))
        projected = hidden @ clip.text_projection
        rows = torch.arange(len(tokens))
        return projected[rows, ends], projected, hidden

    @torch.no_grad()
    def draw_masks(
        self,
        pixels: Tensor,
        tokens: Tensor,
        words: Tensor,
        *,
        shares: tuple[float, float],
    ) -> tuple[Tensor, Tensor]:
        """Return which patches and which words to mask, by the current CLIP.

        They are ``(B, patches)`` and ``(B, L)`` bool. ``words``, ``(B, L)``, are the tokens' word
        numbers; ``shares`` are p_I and p_T, the mean shares of masked patches and words.
        """
        image_share, text_share = shares
        of_patches, of_tokens = self._relevance(pixels, tokens, words)
        of_words, is_word = relevance_of_words(of_tokens, words)
        is_patch = torch.ones_like(of_patches, dtype=torch.bool)
        images = mask_probabilities(of_patches, image_share, is_patch)
        texts = mask_probabilities(of_words, text_share, is_word)
        return torch.rand_like(images) < images, torch.rand_like(texts) < texts

    def _relevance(
        self,
        pixels: Tensor,
        tokens: Tensor,
        words: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the relevance of each patch and each token, by the current CLIP."""
        _, patches = self.encode_images(pixels)
        _, text_tokens, _ = self.encode_texts(tokens)
        return relevance(patches, text_tokens, words != NO_WORD)


def _initial_vectors(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * SPREAD)


def relevance(
    patches: Tensor,
    tokens: Tensor,
    real: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the relevance of each patch ``(B, patches)`` and token ``(B, L)`` (Eq. 1).

    It is the highest cosine.

    Inputs are ``(B, patches, e)`` and ``(B, L, e)`` in the projected space, since the towers differ
    in width. ``real``, ``(B, L)`` bool: tokens of words, not start, end and padding; without any,
    patches have relevance 0.
    """
    units = functional.normalize(patches, dim=-1)
    token_units = functional.normalize(tokens, dim=-1)
    cosines = (units @ token_units.mT).float()
    to_words = cosines.masked_fill(~real[:, None], -torch.inf)
    has_words = real.any(1, keepdim=True)
    of_patches = to_words.amax(2).where(has_words, 0)
    return of_patches, cosines.amax(1)


def relevance_of_words(
    tokens: Tensor,
    words: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the relevance of each word ``(B, L)``, and which word numbers exist.

    A word's relevance is the highest of its tokens'. ``words``, ``(B, L)``: word numbers below L,
    or ``NO_WORD``.
    """
    rows, length = tokens.shape
    empty = torch.full(
        (rows, length + 1),
        -torch.inf,
        dtype=tokens.dtype,
        device=tokens.device,
    )
    reduced = empty.scatter_reduce(1, words + 1, tokens, "amax")
    highest = reduced[:, 1:]  # NO_WORD is column 0
    exists = highest > -torch.inf
    return highest.where(exists, 0), exists


def mask_probabilities(relevant: Tensor, share: float, real: Tensor) -> Tensor:
    """Return P = p + IR - mean(IR), IR = 1 - relevance, clamped to [0, 1].

    Where not ``real``, it is 0 and does not count for the mean. The paper's P can leave [0, 1];
    clamping then changes the mean masked share.
    """
    irrelevant = (1 - relevant).where(real, 0)
    count = real.sum(1, keepdim=True).clamp(min=1)
    mean = irrelevant.sum(1, keepdim=True) / count
    probabilities = share + irrelevant - mean
    return probabilities.clamp(0, 1).where(real, 0)


def mask_tokens(masked: Tensor, words: Tensor) -> Tensor:
    """Return which tokens belong to masked words ``(B, words)``; never start, end or padding."""
    is_word = words != NO_WORD
    return masked.gather(1, words.clamp(min=0)) & is_word


# --- MIR: masked image reconstruction, and comparison of two images ---


class MaskedImageEncoder(nn.Module):
    """Encoder that reconstructs images and compares them; masked places hold a learned vector.

    The same layers do both. *Reconstruct*: one image, masked places included, cross-attends to the
    denoised description. *Interact*: two streams, each cross-attends to the other image without its
    masked places.
    """

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        width = sizes.width
        self.masked_place = _initial_vectors(sizes.features)
        self.to_width = nn.Linear(sizes.features, width)  # a convolution with a kernel of one
        self.positions = _initial_vectors(sizes.places, width)
        self.layers = Layers(
            sizes.layers,
            width,
            sizes.heads,
            dropout=sizes.dropout,
        )
        self.norm = nn.LayerNorm(width)
        self.to_codes = nn.Linear(width, sizes.codes)
        self.join = nn.Linear(2 * width, width)

    def reconstruct(
        self,
        features: Tensor,
        masked: Tensor,
        text: Tensor,
        real: Tensor,
    ) -> Tensor:
        """Return ``(B, places, codes)`` logits of each place's code.

        ``masked`` is ``(B, places)`` bool; ``text`` is the denoised description, ``(B, L, width)``;
        ``real``, ``(B, L)`` bool, marks its tokens without padding, at least one per row.
        """
        tokens = self._embed(features, masked)
        for layer in self.layers:
            tokens = layer.attend_self(tokens)
            context = layer.other.keys_and_values(text)
            tokens = layer.attend_other(tokens, context, allowed=real)
        return self.to_codes(self.norm(tokens))

    def interact(
        self,
        images: Sequence[Tensor],
        masked: Sequence[Tensor | None],
    ) -> Tensor:
        """Return ``(B, places, width)``: the comparison of two images.

        ``images``: grid features of both, ``(B, places, features)``; ``masked``: ``(B, places)``
        bool of each, or ``None``.
        """
        first, second = map(self._embed, images, masked)
        first_visible, second_visible = map(_visible_or_all, masked)
        for layer in self.layers:
            first = layer.attend_self(first, allowed=first_visible)
            second = layer.attend_self(second, allowed=second_visible)
            first_context = layer.other.keys_and_values(first)
            second_context = layer.other.keys_and_values(second)
            first = layer.attend_other(
                first,
                second_context,
                allowed=second_visible,
            )
            second = layer.attend_other(
                second,
                first_context,
                allowed=first_visible,
            )
        normed = [self.norm(first), self.norm(second)]
        return self.join(torch.cat(normed, dim=-1))

    def _embed(self, features: Tensor, masked: Tensor | None) -> Tensor:
        features = features.to(self.masked_place.dtype)  # tables hold float16
        if masked is not None:
            is_masked = masked[..., None]
            features = torch.where(is_masked, self.masked_place, features)
        return self.to_width(features) + self.positions


def _visible_or_all(masked: Tensor | None) -> Tensor | None:
    return None if masked is None else visible(masked)


# --- FDG: descriptions, a token at a time ---


class Describer(nn.Module):
    """Decoder from a comparison to text, with tied embeddings."""

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.words.weight, std=SPREAD)
        self.positions = _initial_vectors(sizes.length, sizes.width)
        self.layers = Layers(
            sizes.layers,
            sizes.width,
            sizes.heads,
            dropout=sizes.dropout,
        )
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, tokens: Tensor, compared: Tensor) -> Tensor:
        """Return ``(B, T, vocabulary)`` logits of the token after each of ``(B, T)`` tokens.

        ``compared``: ``(B, places, width)``, of ``MaskedImageEncoder.interact``.
        """
        length = tokens.shape[1]
        hidden = self.words(tokens) + self.positions[:length]
        for layer in self.layers:
            hidden = layer.attend_self(hidden, causal=True)
            context = layer.other.keys_and_values(compared)
            hidden = layer.attend_other(hidden, context)
        return self._score(hidden)

    @torch.no_grad()
    def generate(
        self,
        compared: Tensor,
        *,
        start: int,
        end: int,
        banned: Sequence[int],
        length: int = 23,
    ) -> list[list[int]]:
        """Return each row's greedy description as tokens, without start and end.

        ``start`` and ``end`` are BERT's ``[CLS]`` and ``[SEP]``; ``banned`` tokens are never
        written: ``[MASK]``, ``[PAD]``, ``[UNK]``; ``length``: maximum tokens, the end included.
        """
        cache = DecoderCache.start(self.layers, compared)
        last = torch.full((len(compared),), start, device=compared.device)
        ended = torch.zeros_like(last, dtype=torch.bool)
        written: list[Tensor] = []
        for position in self.positions[:length]:
            hidden = cache.decode_next(self.words(last)[:, None] + position)
            logits = self._score(hidden)[:, 0]
            logits[:, list(banned)] = -torch.inf
            last = logits.argmax(1).masked_fill(ended, end)
            ended |= last == end
            written.append(last)
            if ended.all():
                break
        rows = torch.stack(written, 1).tolist()
        return [_without(row, end) for row in rows]

    def _score(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden) @ self.words.weight.T


@dataclass(slots=True)
class DecoderCache:
    """Keys and values of a decoder's layers, for descriptions written a token at a time."""

    layers: Layers
    compared: list[KeysValues]
    """Those of the comparison, by layer."""
    written: list[KeysValues | None]
    """Those of the tokens so far, by layer."""

    @classmethod
    def start(cls, layers: Layers, compared: Tensor) -> "DecoderCache":
        """Return the cache before the first token."""
        keys_values = [layer.other.keys_and_values(compared) for layer in layers]
        return cls(layers, keys_values, [None for _ in keys_values])

    def decode_next(self, hidden: Tensor) -> Tensor:
        """Return the vectors ``(B, 1, width)`` of the next tokens, and add these to the cache."""
        for number, layer in enumerate(self.layers):
            before = self.written[number]
            hidden, self.written[number] = layer.attend_cached(hidden, before)
            hidden = layer.attend_other(hidden, self.compared[number])
        return hidden


def _without(tokens: Sequence[int], end: int) -> list[int]:
    return [token for token in tokens if token != end]


# --- The whole ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Batch of B pairs of images with descriptions; dimension 1: first and second image."""

    features: Tensor
    """``(B, 2, places, features)``"""
    pixels: Tensor
    """``(B, 2, 3, h, w)``, CLIP's input; empty where not needed."""
    codes: Tensor
    """``(B, 2, places)``: targets of masked places."""
    tokens: Tensor
    """``(B, 2, L)``: CLIP's tokens of each half."""
    words: Tensor
    """``(B, 2, L)``: the number of each token's word, or ``NO_WORD``."""
    texts: Tensor
    """``(B, 2)``: equal numbers for equal halves."""
    written: Tensor
    """``(B, T)``: the decoder's tokens, start and end included, padded."""
    numbers: Tensor
    """``(B, T)``: the number of each token's word, of the second half from L on, or ``NO_WORD``."""

    def to(self, device: torch.device) -> "Described":
        """Return it on a device."""
        tensors: dict[str, Tensor] = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            tensors[field.name] = tensor.to(device, non_blocking=True)
        return Described(**tensors)


class Namc(nn.Module):
    """NAMC; ``noise`` is absent after pre-training."""

    def __init__(self, sizes: NamcSizes, noise: NoiseIdentifier | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.noise = noise
        self.encoder = MaskedImageEncoder(sizes)
        self.describer = Describer(sizes)

    def pretrain(
        self,
        batch: Described,
        config: NamcConfig,
        *,
        pad: int,
        mask: int,
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the three losses of Eq. 2, and the masked shares of places and words.

        ``pad`` and ``mask`` are the decoder's padding and mask tokens; masked words have no loss.
        """
        noise = self.noise
        assert noise is not None
        masked, masked_words = noise.draw_masks(
            by_side(batch.pixels),
            by_side(batch.tokens),
            by_side(batch.words),
            shares=(config.image_mask_ratio, config.text_mask_ratio),
        )
        alignment, text_tokens = _align_masked(noise, batch, masked, masked_words)
        # (B, 2 L): words of the first half, then of the second.
        words_of_pairs = torch.cat(masked_words.chunk(2), dim=1)
        hidden = mask_tokens(words_of_pairs, batch.numbers)
        description = self._describe(batch, masked, hidden, pad=pad, mask=mask)
        losses = {
            "alignment": alignment,
            "description": description,
        }
        if config.reconstruction_enabled:
            text = noise.to_width(text_tokens)
            losses["reconstruction"] = self._reconstruct(batch, masked, text)
        return losses, _masked_shares(masked, hidden, batch.numbers)

    def _describe(
        self,
        batch: Described,
        masked: Tensor,
        hidden: Tensor,
        *,
        pad: int,
        mask: int,
    ) -> Tensor:
        """Return the loss of the descriptions, whose ``hidden`` tokens are masked."""
        features = by_side(batch.features)
        written = batch.written
        tokens = written.masked_fill(hidden, mask)
        compared = self.encoder.interact(features.chunk(2), masked.chunk(2))
        logits = self.describer(tokens[:, :-1], compared)
        is_ignored = (written == pad) | hidden
        labels = written.masked_fill(is_ignored, IGNORED)
        return prediction_loss(logits, labels[:, 1:])

    def _reconstruct(
        self,
        batch: Described,
        masked: Tensor,
        text: Tensor,
    ) -> Tensor:
        """Return the loss of the masked places' codes.

        The paper's Eq. 18 sums over all places, its text says masked ones; the text is followed.
        """
        features = by_side(batch.features)
        real = _is_no_padding(by_side(batch.tokens))
        logits = self.encoder.reconstruct(features, masked, text, real)
        codes = by_side(batch.codes)
        labels = codes.masked_fill(~masked, IGNORED)
        return prediction_loss(logits, labels)

    def forward(self, features: Tensor, written: Tensor, *, pad: int) -> Tensor:
        """Return the loss of describing clean images by ``(B, T)`` tokens.

        ``features``: ``(B, 2, places, features)``.
        """
        compared = self.compare(features)
        logits = self.describer(written[:, :-1], compared)
        tokens = written[:, 1:]
        labels = tokens.masked_fill(tokens == pad, IGNORED)
        return prediction_loss(logits, labels)

    def compare(self, features: Tensor) -> Tensor:
        """Return ``(B, places, width)`` of ``(B, 2, places, features)``, unmasked."""
        return self.encoder.interact(features.unbind(1), (None, None))


def by_side(pairs: Tensor) -> Tensor:
    """Return ``(2 B, ...)`` of ``(B, 2, ...)``: all first ones, then all second ones."""
    return pairs.transpose(0, 1).flatten(0, 1)


def _is_no_padding(tokens: Tensor) -> Tensor:
    """Return which of CLIP's tokens are not after the end token, which has the highest id."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    ends = tokens.argmax(1, keepdim=True)
    return positions <= ends


def _align_masked(
    noise: NoiseIdentifier,
    batch: Described,
    masked: Tensor,
    masked_words: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the alignment loss of masked images and texts, and the texts' tokens."""
    words = by_side(batch.words)
    masked_tokens = mask_tokens(masked_words, words)
    images, _ = noise.encode_images(by_side(batch.pixels), masked)
    texts, _, tokens = noise.encode_texts(by_side(batch.tokens), masked_tokens)
    return _align(images, texts, batch.texts), tokens


def _align(images: Tensor, texts: Tensor, identity: Tensor) -> Tensor:
    """Return the alignment loss of both sides; images and texts are ``(2 B, e)``."""
    sides = zip(
        images.chunk(2),
        texts.chunk(2),
        identity.unbind(1),
        strict=True,
    )
    losses = [alignment_loss(*side) for side in sides]
    return torch.stack(losses).sum()


def _masked_shares(
    masked: Tensor,
    hidden: Tensor,
    numbers: Tensor,
) -> dict[str, Tensor]:
    """Return the masked shares of places and words."""
    count = (numbers != NO_WORD).sum()
    return {
        "places": masked.float().mean(),
        "words": hidden.sum() / count.clamp(min=1),
    }


# --- Losses (3.3 and Appendix E) ---


def alignment_loss(images: Tensor, texts: Tensor, identity: Tensor) -> Tensor:
    """Return IRRA's similarity distribution matching, both directions, averaged over the batch.

    KL(p || q) of p, the softmax over cosines / 0.02, and q, uniform over equal texts: repeated
    texts in a batch are no false negatives. ``identity``, ``(B,)``, is equal for equal texts;
    images and texts are ``(B, e)``. Always float32: cosines in bfloat16 are off by 0.002, logits by
    0.1.
    """
    with torch.autocast(images.device.type, enabled=False):
        image_units = functional.normalize(images.float(), dim=-1)
        text_units = functional.normalize(texts.float(), dim=-1)
        cosines = image_units @ text_units.T
    is_same = identity[:, None] == identity
    same = is_same.float()
    targets = same / same.sum(1, keepdim=True)  # for both directions, as equality is symmetric
    target_logs = (targets + EPSILON).log()
    losses: list[Tensor] = []
    for logits in (cosines / TEMPERATURE, cosines.T / TEMPERATURE):
        logs = logits.log_softmax(1)
        divergence = logs.exp() * (logs - target_logs)
        losses.append(divergence.sum(1).mean())
    return torch.stack(losses).sum()


def prediction_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of tokens or codes; 0 without targets.

    ``logits``: ``(B, T, kinds)``; ``labels``: ``(B, T)``, ``IGNORED`` where they do not count.
    """
    flat = logits.float().flatten(0, 1)
    losses = functional.cross_entropy(
        flat,
        labels.flatten(),
        reduction="sum",
        ignore_index=IGNORED,
    )
    count = (labels != IGNORED).sum()
    return losses / count.clamp(min=1)
