"""What is scored: one predicted text and some references per item, their words as numbers, one formula per metric."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
END = "\0"
"""Parts texts from each other where all are split at once; no text has it."""


@dataclass(frozen=True)
class Corpus:
    """Tokenised texts, their tokens joined by one space each.

    Attributes:
        predictions: one text per item; it may be empty.
        references: of each item, one text at least.
    """

    predictions: Sequence[str]
    references: Sequence[Sequence[str]]

    def __post_init__(self) -> None:
        if not self.predictions or len(self.predictions) != len(self.references) or not all(self.references):
            raise ValueError("a corpus has items, and each item a prediction and at least one reference")


@dataclass(frozen=True)
class Words:
    """The words of all texts as numbers: first the predictions, one per item, then the references, item by item.

    Attributes:
        words: of all texts, one after another.
        size: how many words are distinct.
        lengths: in words, per text.
        items: to which item each text belongs.
        count: how many items, thus predictions, there are.
    """

    words: Integers
    size: int
    lengths: Integers
    items: Integers
    count: int


@dataclass(frozen=True)
class Measured:
    """What a metric has found: numbers of each item whose sums give its scores, of any set of items.

    Attributes:
        names: of the scores.
        statistics: one row per item.
        conclude: makes a score per name (last axis) of sums of rows (last axis). Of the sum of all rows it makes the
            corpus' score, of one row that of an item, of a resample's sum that of the resample.
    """

    names: tuple[str, ...]
    statistics: Floats
    conclude: Callable[[Floats], Floats]


def measure_mean(name: str, scores: Floats) -> Measured:
    """Return a metric that is the mean of its items' scores."""
    return Measured((name,), np.stack([scores, np.ones(len(scores))], axis=1), _divide)


def _divide(sums: Floats) -> Floats:
    return sums[..., :1] / sums[..., 1:]


def number_words(corpus: Corpus) -> Words:
    """Return the words of a corpus, which any white space parts, as numbers."""
    texts = [*corpus.predictions, *(text for some in corpus.references for text in some)]
    numbers: defaultdict[str, int] = defaultdict(count().__next__, {END: -1})
    parted = f" {END} ".join([*texts, ""]).split()
    words = np.fromiter(map(numbers.__getitem__, parted), np.int64, len(parted))
    ends = np.flatnonzero(words < 0)
    own = np.arange(len(corpus.predictions))
    return Words(
        words=words[words >= 0],
        size=max(len(numbers) - 1, 1),
        lengths=np.diff(ends, prepend=-1) - 1,
        items=np.concatenate([own, np.repeat(own, [len(some) for some in corpus.references])]),
        count=len(own),
    )
