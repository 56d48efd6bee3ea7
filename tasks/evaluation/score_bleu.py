"""BLEU-1 to BLEU-4 of a corpus, by coco-caption's rules (Papineni et al. 2002; pycocoevalcap's ``Bleu``).

The reference length is the closest of an item's references, the shorter of two that are as close. There is no
smoothing but two tiny numbers that keep divisions from zero.
"""

import numpy as np

from pairwright.tasks.evaluation.corpus import Floats, Integers, Measured, Words
from pairwright.tasks.evaluation.count_ngrams import ORDERS, Counts

NAMES = tuple(f"BLEU-{order}" for order in range(1, ORDERS + 1))
SMALL, TINY = 1e-9, 1e-15
"""Added to what is divided by, and to what is divided, as the reference implementation does."""


def measure_bleu(words: Words, counts: list[Counts]) -> Measured:
    """Return the lengths and matches of each item, of which BLEU is made."""
    lengths = words.lengths[: words.count]
    guesses = [np.maximum(lengths - order, 0) for order in range(ORDERS)]
    correct = [_matches(words, one) for one in counts]
    columns = [lengths, _closest(words), *correct, *guesses]
    return Measured(NAMES, np.stack(columns, axis=1).astype(np.float64), conclude_bleu)


def conclude_bleu(sums: Floats) -> Floats:
    """Return BLEU-1 to BLEU-4 of sums of lengths, reference lengths, matches and n-grams."""
    length, wanted = sums[..., :1], sums[..., 1:2]
    correct, guessed = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    precisions = np.cumprod((correct + TINY) / (guessed + SMALL), axis=-1)
    ratio = (length + TINY) / (wanted + SMALL)
    return precisions ** (1 / np.arange(1, ORDERS + 1)) * np.exp(np.minimum(1 - 1 / ratio, 0))


def _matches(words: Words, counts: Counts) -> Integers:
    """Return how many n-grams of each prediction are right, each as often at most as in one of its references."""
    most = np.zeros(counts.predicted, np.int64)
    np.maximum.at(most, counts.matched, counts.counts[counts.references])
    right = np.minimum(most, counts.counts[: counts.predicted])
    return np.bincount(counts.texts[: counts.predicted], right, words.count).astype(np.int64)


def _closest(words: Words) -> Integers:
    """Return the length of each item's closest reference."""
    lengths, items = words.lengths[words.count :], words.items[words.count :]
    most = int(words.lengths.max()) + 1
    far = np.abs(lengths - words.lengths[items]) * most + lengths
    return np.minimum.reduceat(far, np.searchsorted(items, np.arange(words.count))) % most
