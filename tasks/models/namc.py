"""NAMC, a captioner of image differences that is trained from scratch (paper 001, Figure 2), and its losses.

NIM, ``NoiseIdentifier``: which patches and words do not belong together, by CLIP's own tokens (3.2.1). MIR,
``MaskedImageEncoder``: what masked places were, and what changed between two images (3.2.2). FDG, ``Describer``: a
description of that (3.2.3).

Pre-training on a table of differences goes through all three. Fine-tuning on people's captions, which are taken to be
clean, and inference need only the images' grid features: no masks, no CLIP. Shapes: B pairs of images, ``places`` of a
grid, L tokens of a half as CLIP reads it, T tokens of a description as the decoder writes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.cross_attention import Layers, Seen, visible
from pairwright.tasks.models.open_clip_embedder import has_class_token

NO_WORD = -1
"""Stands for tokens that belong to no word."""
SPREAD = 0.02
"""Standard deviation of fresh vectors, as BERT's."""
TEMPERATURE = 0.02
EPSILON = 1e-8
"""IRRA's values (Jiang and Ye 2023); NAMC does not print its own."""
IGNORED = -100
"""Label of what is not to be learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamcSizes:
    """Sizes of the masked image encoder and the decoder; the values are the paper's (64.2 M weights, CLIP aside)."""

    width: int = 768
    heads: int = 12
    layers: int = 2
    """Of the encoder, and of the decoder."""
    places: int = 196
    """Of an image's grid: 14 x 14, the same for CLIP's patches, the CNN's features and VQGAN's codes."""
    features: int = 1024
    """Channels of the CNN's features: ResNet-101, third stage."""
    codes: int = 1024
    """In VQGAN's codebook."""
    vocabulary: int = 30_522
    """Of the decoder: BERT's."""
    length: int = 80
    """Tokens that a description may have; the paper's 23 are those of its benchmarks, too few for its own template."""
    dropout: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Batch of pairs of images and their descriptions; dimension 1 is the first and the second image."""

    pixels: Tensor
    """``(B, 2, 3, h, w)``, as CLIP prepares them."""
    features: Tensor
    """``(B, 2, places, features)``."""
    codes: Tensor
    """``(B, 2, places)``: targets of masked places."""
    tokens: Tensor
    """``(B, 2, L)``: what CLIP reads of each half."""
    words: Tensor
    """``(B, 2, L)``: the number of each token's word, or ``NO_WORD``."""
    written: Tensor
    """``(B, T)``: the description in the decoder's tokens, start and end included; then padding."""
    numbers: Tensor
    """``(B, T)``: the number of each token's word, those of the second half counted from L on, or ``NO_WORD``."""
    relevant: Tensor | None = None
    """``(B, 2, places + L)``: relevance of each place and token, found before the training; ``None``: CLIP says so as
    it learns."""

    def some(self, start: int, stop: int) -> "Described":
        """Return these of its rows."""
        return self._each(lambda tensor: tensor[start:stop])

    def to(self, device: torch.device) -> "Described":
        """Return it on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Described":
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        return Described(**{name: change(tensor) for name, tensor in tensors.items() if tensor is not None})


# --- NIM: noise identification and masking ---------------------------------------------------------------------------


class SeenImage(NamedTuple):
    """Images in CLIP's projected space: ``(B, e)`` as a whole and ``(B, patches, e)``."""

    whole: Tensor
    patches: Tensor


class ReadText(NamedTuple):
    """Texts in CLIP's projected space, ``(B, e)`` and ``(B, L, e)``, and the tower's own ``(B, L, w)``."""

    whole: Tensor
    tokens: Tensor
    hidden: Tensor


class Masks(NamedTuple):
    """What is masked: ``(B, patches)`` and ``(B, words)``, bool."""

    patches: Tensor
    words: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How masks are drawn: the shares p_I and p_T, and a seed per row, so that no row depends on its neighbours."""

    seeds: Sequence[int]
    image_share: float = 0.2
    text_share: float = 0.15


class NoiseIdentifier(nn.Module):
    """Encodes images and texts of which something is masked; ``clip`` is a model of open_clip.

    Masked patches and words become a learned vector each; ``to_width`` maps the text tower's tokens to the decoder's
    width.

    Raises:
        ModelError: a tower is not of CLIP's form.
    """

    def __init__(self, clip: Any, *, width: int) -> None:
        super().__init__()
        if not has_class_token(clip.visual):
            kind = type(clip.visual).__name__
            raise ModelError(f"NAMC masks patches of a vision transformer of CLIP's form, not of a {kind}")
        if getattr(clip, "text_pool_type", "") != "argmax" or not isinstance(clip.text_projection, Tensor):
            raise ModelError("NAMC masks words of a text tower of CLIP's own form; this model's ends differently")
        self.clip = clip
        self.masked_patch = nn.Parameter(torch.randn(clip.visual.conv1.out_channels) * SPREAD)
        self.masked_word = nn.Parameter(torch.randn(clip.token_embedding.embedding_dim) * SPREAD)
        self.to_width = nn.Linear(clip.token_embedding.embedding_dim, width)

    def see(self, pixels: Tensor, masked: Tensor | None = None) -> SeenImage:
        """Encode ``(B, 3, h, w)`` pixels, of which ``masked`` (B, patches) are not seen."""
        visual = self.clip.visual
        patches = visual.conv1(pixels).flatten(2).transpose(1, 2)
        if masked is not None:
            patches = torch.where(masked[..., None], self.masked_patch.to(patches.dtype), patches)
        start = visual.class_embedding.to(patches.dtype).expand(len(patches), 1, -1)
        tokens = torch.cat([start, patches], dim=1) + visual.positional_embedding.to(patches.dtype)
        seen = visual.ln_post(visual.transformer(visual.ln_pre(tokens))) @ visual.proj
        return SeenImage(seen[:, 0], seen[:, 1:])

    def read(self, tokens: Tensor, masked: Tensor | None = None) -> ReadText:
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
    def relate(self, pixels: Tensor, tokens: Tensor, words: Tensor) -> Tensor:
        """Return the relevance of each patch and each token, ``(B, patches + L)``, by CLIP as it is now."""
        return torch.cat(relevance(self.see(pixels).patches, self.read(tokens).tokens, words != NO_WORD), dim=1)


def relevance(patches: Tensor, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return how relevant each patch ``(B, patches)`` and each token ``(B, L)`` is: its highest cosine (Eq. 1).

    In the projected space, since the towers differ in width. Start, end and padding are no words.

    Args:
        patches: ``(B, patches, e)``.
        tokens: ``(B, L, e)``.
        real: ``(B, L)`` bool, which tokens are of words. Without any, every patch has relevance 0.
    """
    cosines = functional.normalize(patches, dim=-1) @ functional.normalize(tokens, dim=-1).transpose(1, 2)
    seen = cosines.masked_fill(~real[:, None], -torch.inf).amax(2)
    return seen.where(real.any(1, keepdim=True), 0), cosines.amax(1)


def relevance_of_words(tokens: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return per word number ``(B, L)`` the highest relevance of its tokens, and which numbers there are.

    Args:
        tokens: ``(B, L)`` relevance.
        words: ``(B, L)`` numbers of words below L, or ``NO_WORD``.
    """
    none = torch.full((len(tokens), tokens.shape[1] + 1), -torch.inf, dtype=tokens.dtype, device=tokens.device)
    found = none.scatter_reduce(1, words + 1, tokens, "amax")[:, 1:]  # what is of no word goes to a place of its own
    real = found > -torch.inf
    return found.where(real, 0), real


def mask_probabilities(relevant: Tensor, share: float, real: Tensor) -> Tensor:
    """Return P = p + IR - mean(IR), IR = 1 - relevance, held within [0, 1]; 0 and in no mean where not ``real``.

    The paper's P can leave [0, 1]; where it does, less than ``share`` is masked on average, or more.
    """
    irrelevant = (1 - relevant).where(real, 0)
    mean = irrelevant.sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
    return (share + irrelevant - mean).clamp(0, 1).where(real, 0)


def draw_masks(relevant: Tensor, words: Tensor, draw: Draw) -> Masks:
    """Return what to mask, by ``(B, patches + L)`` relevance and the word number ``(B, L)`` of each token."""
    patches, tokens = relevant.split([relevant.shape[1] - words.shape[1], words.shape[1]], dim=1)
    whole, real = relevance_of_words(tokens, words)
    texts = mask_probabilities(whole, draw.text_share, real)
    images = mask_probabilities(patches, draw.image_share, torch.ones_like(patches, dtype=torch.bool))
    rows = [np.random.Generator(np.random.Philox(key=seed)).random(relevant.shape[1]) for seed in draw.seeds]
    numbers = torch.from_numpy(np.stack(rows)).float().to(relevant.device)
    return Masks(numbers[:, : images.shape[1]] < images, numbers[:, images.shape[1] :] < texts)


def mask_tokens(masked: Tensor, words: Tensor) -> Tensor:
    """Return which tokens, whose words are ``words``, are of masked words ``(B, words)``: no start, end or padding."""
    return masked.gather(1, words.clamp(min=0)) & (words != NO_WORD)


# --- MIR: masked image reconstruction, and the comparison of two images -----------------------------------------------


class MaskedImageEncoder(nn.Module):
    """Reconstructs images, and compares them; masked places hold a learned vector.

    The same layers do both. *Reconstruct*: one image, masked places ask too, what is cross-attended is the denoised
    description. *Interact*: two streams, each cross-attends to the other image, and nobody looks at masked places.
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

    def interact(self, images: Sequence[Tensor], masked: Sequence[Tensor | None]) -> Tensor:
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

    def _embed(self, features: Tensor, masked: Tensor | None) -> Tensor:
        features = features.to(self.masked_place.dtype)  # tables hold float16
        if masked is not None:
            features = torch.where(masked[..., None], self.masked_place, features)
        return self.to_width(features) + self.positions


# --- FDG: descriptions, a token at a time -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How descriptions are written."""

    start: int
    end: int
    """Tokens of the decoder's vocabulary: ``[CLS]`` and ``[SEP]`` of BERT."""
    banned: Sequence[int]
    """Tokens that are never written: ``[MASK]``, which training may have shown, ``[PAD]``, ``[UNK]``."""
    length: int = 23
    """Maximum tokens, the end counted."""
    beams: int = 1
    """1: greedy."""


class Describer(nn.Module):
    """Decodes a comparison to text; its embeddings are also its last map."""

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.words.weight, std=SPREAD)
        self.positions = nn.Parameter(torch.randn(sizes.length, sizes.width) * SPREAD)
        self.layers = Layers(sizes.layers, sizes.width, sizes.heads, dropout=sizes.dropout)
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, tokens: Tensor, compared: Tensor) -> Tensor:
        """Return ``(B, T, vocabulary)`` logits of what follows each of ``(B, T)`` tokens.

        Args:
            tokens: the description so far, from its start.
            compared: ``(B, places, width)``, of ``MaskedImageEncoder.interact``.
        """
        found = self.words(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            found = layer.finish(layer.look(found, causal=True), layer.other.see(compared))
        return self._score(found)

    @torch.no_grad()
    def write(self, compared: Tensor, how: Decoding) -> list[list[int]]:
        """Return the tokens of a description per row, without start and end, all rows at once.

        Of ``how.beams`` prefixes per row those are kept that are likeliest so far; of whole descriptions the one whose
        tokens are likeliest on average. What has not ended at ``how.length`` is taken as it is. What was seen of the
        tokens before is kept, so that a step costs one token.
        """
        beams, rows = how.beams, len(compared)
        shown = [layer.other.see(compared) for layer in self.layers]
        shown = [one.of(torch.arange(rows, device=compared.device).repeat_interleave(beams)) for one in shown]
        tokens = torch.full((rows * beams, 1), how.start, device=compared.device)
        scores = torch.full((rows, beams), -torch.inf, device=compared.device)
        scores[:, 0] = 0  # the beams of a row are alike at first: only one of them counts
        before: list[Seen | None] = [None for _ in self.layers]
        for _ in range(min(how.length, len(self.positions))):
            logits, before = self._step(tokens, before, shown)
            logits[:, list(how.banned)] = -torch.inf
            ended = tokens[:, 1:].eq(how.end).any(1, keepdim=True)
            stay = torch.full_like(logits, -torch.inf).index_fill_(1, tokens.new_tensor([how.end]), 0)
            chances = torch.where(ended, stay, logits.float().log_softmax(1))  # what has ended goes on at no cost
            scores, places = (scores.flatten()[:, None] + chances).unflatten(0, (rows, beams)).flatten(1).topk(beams)
            words = chances.shape[1]
            kept = (places // words + torch.arange(rows, device=places.device)[:, None] * beams).flatten()
            tokens = torch.cat([tokens[kept], (places % words).flatten()[:, None]], 1)
            if beams > 1:
                before = [one.of(kept) for one in before if one]
            if tokens[:, 1:].eq(how.end).any(1).all():
                break
        return _best(tokens[:, 1:].unflatten(0, (rows, beams)), scores, how.end)

    def _step(
        self, tokens: Tensor, before: Sequence[Seen | None], shown: Sequence[Seen]
    ) -> tuple[Tensor, list[Seen | None]]:
        """Return logits ``(B, vocabulary)`` of what follows the last token, and what can be seen from then on."""
        found, kept = self.words(tokens[:, -1:]) + self.positions[tokens.shape[1] - 1], []
        for layer, past, images in zip(self.layers, before, shown, strict=True):
            found, seen = layer.look_back(found, past)
            found = layer.finish(found, images)
            kept.append(seen)
        return self._score(found)[:, 0], kept

    def _score(self, found: Tensor) -> Tensor:
        return self.norm(found) @ self.words.weight.T


def _best(tokens: Tensor, scores: Tensor, end: int) -> list[list[int]]:
    """Return each row's likeliest description by the mean of its tokens; ``(rows, beams, T)`` and ``(rows, beams)``."""
    ends = tokens.eq(end)
    first = torch.where(ends.any(2), ends.int().argmax(2), tokens.shape[2])
    counted = first + ends.any(2)
    best = (scores / counted).argmax(1)
    return [tokens[row, best[row], : int(first[row, best[row]])].tolist() for row in range(len(tokens))]


# --- The whole --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoised:
    """What pre-training's losses are made of; rows of first images come before those of second ones."""

    images: Tensor
    """``(2 B, e)``: denoised images in CLIP's space."""
    texts: Tensor
    """``(2 B, e)``: denoised halves."""
    codes: Tensor
    """``(2 B, places, codes)``: logits of what each place was."""
    masked: Tensor
    """``(2 B, places)`` bool."""
    next_tokens: Tensor
    """``(B, T - 1, vocabulary)``: logits of what follows each token."""
    hidden: Tensor
    """``(B, T)`` bool: tokens of masked words."""


class Namc(nn.Module):
    """The model; ``noise`` is left out where it is not pre-trained any more."""

    def __init__(self, sizes: NamcSizes, noise: NoiseIdentifier | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        self.noise = noise
        self.encoder = MaskedImageEncoder(sizes)
        self.describer = Describer(sizes)

    def mask(self, batch: Described, draw: Draw) -> Masks:
        """Return what to mask; the seeds of ``draw`` are of all first images, then of all second ones."""
        assert self.noise is not None
        pixels, tokens, words = (_by_side(one) for one in (batch.pixels, batch.tokens, batch.words))
        known = batch.relevant
        relevant = self.noise.relate(pixels, tokens, words) if known is None else _by_side(known)
        return draw_masks(relevant, words, draw)

    def encode(self, batch: Described, masks: Masks) -> tuple[SeenImage, ReadText]:
        """Return denoised images and halves in CLIP's space, all first ones before all second ones."""
        assert self.noise is not None
        seen = self.noise.see(_by_side(batch.pixels), masks.patches)
        return seen, self.noise.read(_by_side(batch.tokens), mask_tokens(masks.words, _by_side(batch.words)))

    def denoise(self, batch: Described, masks: Masks, *, mask_token: int) -> Denoised:
        """Run pre-training's forward pass; ``mask_token`` stands for a masked word in the decoder's vocabulary."""
        assert self.noise is not None
        seen, read = self.encode(batch, masks)
        features, tokens = _by_side(batch.features), _by_side(batch.tokens)
        first, second = masks.patches.chunk(2)
        compared = self.encoder.interact(features.chunk(2), (first, second))
        hidden = hidden_tokens(masks, batch)
        shown = batch.written.masked_fill(hidden, mask_token)
        # No padding: up to the end, which has the highest number.
        real = torch.arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(1, keepdim=True)
        return Denoised(
            images=seen.whole,
            texts=read.whole,
            codes=self.encoder.reconstruct(features, masks.patches, self.noise.to_width(read.hidden), real),
            masked=masks.patches,
            next_tokens=self.describer(shown[:, :-1], compared),
            hidden=hidden,
        )

    def forward(self, features: Tensor, written: Tensor) -> Tensor:
        """Return ``(B, T - 1, vocabulary)`` logits of what follows each of ``(B, T)`` tokens, from clean images."""
        return self.describer(written[:, :-1], self.compare(features))

    def compare(self, features: Tensor) -> Tensor:
        """Return ``(B, places, width)`` of ``(B, 2, places, features)``, nothing masked."""
        return self.encoder.interact(features.unbind(1), (None, None))

    def write(self, features: Tensor, how: Decoding) -> list[list[int]]:
        """Return descriptions of all pairs in one batched call, as the decoder's tokens."""
        return self.describer.write(self.compare(features), how)


def hidden_tokens(masks: Masks, batch: Described) -> Tensor:
    """Return ``(B, T)``: which of the decoder's tokens are of masked words."""
    both = torch.cat(masks.words.chunk(2), dim=1)  # (B, 2 L): the second half's words come after the first's
    return mask_tokens(both, batch.numbers)


def _by_side(both: Tensor) -> Tensor:
    """Return ``(2 B, ...)`` of ``(B, 2, ...)``: all first ones, then all second ones."""
    return both.transpose(0, 1).flatten(0, 1)


# --- Losses (3.3 and Appendix E) --------------------------------------------------------------------------------------


def alignment_loss(images: Tensor, texts: Tensor, identity: Tensor) -> Tensor:
    """Return IRRA's similarity distribution matching, both directions, averaged over the batch.

    KL(p || q) of the softmax p over cosines / 0.02 and the shares q of the texts that are alike: a text that occurs
    twice in a batch is no false negative. In float32 within autocast, too: cosines in bfloat16 are off by 0.002, logits
    by 0.1.

    Args:
        images: ``(B, e)``.
        texts: ``(B, e)``.
        identity: ``(B,)``, equal where the texts are the same.
    """
    with torch.autocast(images.device.type, enabled=False):
        cosines = functional.normalize(images.float(), dim=-1) @ functional.normalize(texts.float(), dim=-1).T
    same = (identity[:, None] == identity).float()
    wanted = same / same.sum(1, keepdim=True)  # of both directions: which texts are alike is symmetric
    directions = [logits.log_softmax(1) for logits in (cosines / TEMPERATURE, cosines.T / TEMPERATURE)]
    return torch.stack([(logs.exp() * (logs - (wanted + EPSILON).log())).sum(1).mean() for logs in directions]).sum()


def reconstruction_loss(logits: Tensor, codes: Tensor, masked: Tensor, *, of: int | None = None) -> Tensor:
    """Return the mean cross-entropy of VQGAN's codes at masked places; 0 where nothing is masked.

    The paper's Eq. 18 sums over all places, its text speaks of masked ones; the text is followed.

    Args:
        logits: ``(B, places, codes)``.
        codes: ``(B, places)``.
        masked: ``(B, places)`` bool.
        of: how many masked places the mean is over, where these rows are a part of a batch; ``None``: theirs.
    """
    losses = functional.cross_entropy(logits.float().flatten(0, 1), codes.flatten(), reduction="none")
    return (losses * masked.flatten()).sum() / max(int(masked.sum()) if of is None else of, 1)


def description_loss(logits: Tensor, labels: Tensor, *, of: int | None = None) -> Tensor:
    """Return the mean cross-entropy of the next token; 0 where nothing is to be learnt.

    Args:
        logits: ``(B, T, vocabulary)``, of what follows each token.
        labels: ``(B, T)``, what does; ``IGNORED`` where it does not count.
        of: how many labels the mean is over, where these rows are a part of a batch; ``None``: theirs that count.
    """
    flat = logits.float().flatten(0, 1)
    losses = functional.cross_entropy(flat, labels.flatten(), reduction="sum", ignore_index=IGNORED)
    return losses / max(int((labels != IGNORED).sum()) if of is None else of, 1)
