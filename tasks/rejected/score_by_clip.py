"""Score removals by how much worse a chosen text fits the image without the element (paper 004, section 3.2, Eq. 9).

Reads texts, and the CLIP vectors of images and of the images without an element; needs the text tower of the model that
made those vectors. The paper has a language model split the text into sentences that stand alone; here they end where
sentences end, and one with more than the tower's 77 tokens is cut into pieces (ours). What is behind the first
characters and pieces of an endless text is not read.

Eq. 9 is the sum of the sentences' cosines with the candidate, and its lowest wins. Cosines with different images cannot
be compared, so what is compared is how far that sum is below the one with the original (ours): of the candidates of one
image the same wins. A difference text is about two images, so each candidate is compared with what is said of its own,
and not with what is denied of it: "no dog" is as true whatever is removed (ours).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.sentences import split_by_rules
from pairwright.tasks.models.text_scorer import TextScorer
from pairwright.tasks.store.vectors import Vectors

MOST_CHARACTERS, MOST_PIECES = 20_000, 100
DIGITS = 6
"""What is behind them depends on the size of batches."""
SPACE = "clip"
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """Say how a text fits an image without an element."""

    drop: float
    """How far ``clip`` is below the sum of the cosines with the original."""
    clip: float
    """Sum of the cosines of the text's sentences with the candidate (Eq. 9)."""


@dataclass(frozen=True)
class ClipScores:
    """Hold the sentences of some texts and the images that they are compared with, all as vectors."""

    texts: Mapping[str, Sequence[int]]
    """Per text, which of the sentences are its own."""
    sentences: NDArray[np.float32]
    """``(n, dimension)``."""
    images: Vectors | None
    removals: Vectors | None
    """By the key of the element that is removed."""

    def fit(self, text: str, image: str, element: str) -> Fit | None:
        """Return how the text fits the image without the element; ``None`` where either has no vector (yet)."""
        original, candidate = _find(self.images, image), _find(self.removals, element)
        if original is None or candidate is None:
            return None
        before, after = self._sum(text, original), self._sum(text, candidate)
        return Fit(drop=round(before - after, DIGITS), clip=after)

    def _sum(self, text: str, image: Vector) -> float:
        own = self.sentences[list(self.texts[text])].astype(np.float64)
        return round(float((own @ image).sum()), DIGITS) if len(own) else 0.0


def read_texts(
    texts: Iterable[str], scorer: TextScorer, *, images: Mapping[str, Vectors], removals: Mapping[str, Vectors]
) -> ClipScores:
    """Embed the sentences of the texts, each once, in an order that is always the same."""
    pieces = {text: sentences_of(text, scorer) for text in texts}
    known = sorted(set(chain.from_iterable(pieces.values())))
    place = {sentence: number for number, sentence in enumerate(known)}
    own = {text: [place[sentence] for sentence in parts] for text, parts in pieces.items()}
    return ClipScores(own, scorer.embed(known), images.get(SPACE), removals.get(SPACE))


def sentences_of(text: str, scorer: TextScorer) -> tuple[str, ...]:
    """Return the sentences that are scored, none longer than the tower takes."""
    sentences = split_by_rules(text[:MOST_CHARACTERS])
    return tuple(islice(chain.from_iterable(map(scorer.pieces, sentences)), MOST_PIECES))


def _find(space: Vectors | None, key: str) -> Vector | None:
    """Return what has the key, at unit length again; ``None`` where it has no vector."""
    if space is None:
        return None
    try:
        found = space.matrix[space.rows_of([key])[0]].astype(np.float64)
    except KeyError:
        return None
    return found / max(float(np.linalg.norm(found)), float(np.finfo(np.float32).tiny))
