"""FDG: put into words what two images have to do with each other (paper 001, 3.2.3), a token at a time.

The decoder's embeddings are also its last map. What was seen of the tokens before is kept, so that a step costs one
token; all rows of a batch take their steps together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from pairwright.tasks.models.cross_attention import Layers, Seen
from pairwright.tasks.models.namc.sizes import NamcSizes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Say how descriptions are written."""

    start: int
    end: int
    """Tokens of the decoder's vocabulary: ``[CLS]`` and ``[SEP]`` of BERT."""
    banned: Sequence[int]
    """Tokens that are never written: ``[MASK]``, which training may have shown, ``[PAD]``, ``[UNK]``."""
    length: int = 23
    """Most tokens, the end counted."""
    beams: int = 1
    """1: greedy."""


class Describer(nn.Module):
    """Decode a comparison to text."""

    def __init__(self, sizes: NamcSizes) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.vocabulary, sizes.width)
        nn.init.normal_(self.words.weight, std=0.02)
        self.positions = nn.Parameter(torch.randn(sizes.length, sizes.width) * 0.02)
        self.layers = Layers(sizes.layers, sizes.width, sizes.heads, dropout=sizes.dropout)
        self.norm = nn.LayerNorm(sizes.width)

    def forward(self, tokens: "Tensor", compared: "Tensor") -> "Tensor":
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
    def write(self, compared: "Tensor", how: Decoding) -> list[list[int]]:
        """Return the tokens of a description per row, without start and end, all rows at once.

        Of ``how.beams`` prefixes per row those are kept that are likeliest so far; of whole descriptions the one whose
        tokens are likeliest on average. What has not ended at ``how.length`` is taken as it is.
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
            chances = logits.float().log_softmax(1)
            chances = _hold_ended(chances, tokens[:, 1:].eq(how.end).any(1), how.end)
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
        self, tokens: "Tensor", before: "Sequence[Seen | None]", shown: Sequence[Seen]
    ) -> "tuple[Tensor, list[Seen | None]]":
        """Return logits ``(B, vocabulary)`` of what follows the last token, and what can be seen from then on."""
        place = tokens.shape[1] - 1
        found, kept = self.words(tokens[:, -1:]) + self.positions[place], []
        for layer, past, images in zip(self.layers, before, shown, strict=True):
            found, seen = layer.look_back(found, past)
            found = layer.finish(found, images)
            kept.append(seen)
        return self._score(found)[:, 0], kept

    def _score(self, found: "Tensor") -> "Tensor":
        return self.norm(found) @ self.words.weight.T


def _hold_ended(chances: "Tensor", ended: "Tensor", end: int) -> "Tensor":
    """Let descriptions that have ended go on with nothing but their end, at no cost."""
    stay = torch.full_like(chances, -torch.inf)
    stay[:, end] = 0
    return torch.where(ended[:, None], stay, chances)


def _best(tokens: "Tensor", scores: "Tensor", end: int) -> list[list[int]]:
    """Return each row's likeliest description by the mean of its tokens; ``(rows, beams, T)`` and ``(rows, beams)``."""
    ends = tokens.eq(end)
    first = torch.where(ends.any(2), ends.int().argmax(2), tokens.shape[2])
    counted = first + ends.any(2)
    best = (scores / counted).argmax(1)
    rows = range(len(tokens))
    return [tokens[row, best[row], : int(first[row, best[row]])].tolist() for row in rows]
