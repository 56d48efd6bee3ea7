"""Count the n-grams of a corpus: as numbers, by sorting, all texts at once.

Made once, the counts serve BLEU and CIDEr-D. No network, no other program.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pairwright.tasks.evaluation.corpus import Integers, Words

ORDERS = 4
"""Words of the longest n-grams: both metrics use 1 to 4."""


@dataclass(frozen=True)
class Counts:
    """How often each n-gram of one order is in each text, without the zeros, sorted by text and n-gram.

    Attributes:
        texts: per entry, the text.
        grams: per entry, the n-gram's number.
        counts: per entry, how often.
        size: how many n-grams are distinct.
        predicted: how many entries are of predictions; they come first.
        references: entries of references whose n-gram is also in their item's prediction.
        matched: per such entry, that of the prediction.
    """

    texts: Integers
    grams: Integers
    counts: Integers
    size: int
    predicted: int
    references: Integers
    matched: Integers


def count_ngrams(words: Words) -> list[Counts]:
    """Return the counts per order, from one word to ``ORDERS``."""
    texts = np.repeat(np.arange(len(words.lengths)), words.lengths)
    return [_count(words, texts[places], grams, size) for places, grams, size in _number_grams(words)]


def _number_grams(words: Words) -> Iterator[tuple[Integers, Integers, int]]:
    """Yield per order where an n-gram begins, its number, and how many numbers there are.

    An n-gram is the one of an order less at its place and the word after that: numbers stay below the count of words,
    so that keys of two of them fit into 64 bits.
    """
    left = np.repeat(np.cumsum(words.lengths), words.lengths) - np.arange(len(words.words))
    places, grams, size = np.arange(len(words.words)), words.words, words.size
    yield places, grams, size
    for order in range(2, ORDERS + 1):
        longer = left[places] >= order
        places = places[longer]
        grams, size = _rank(grams[longer] * words.size + words.words[places + order - 1])
        yield places, grams, size


def _rank(keys: Integers) -> tuple[Integers, int]:
    """Return the rank of each key among the distinct ones, and how many of them there are."""
    order = np.argsort(keys)
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.cumsum(find_new(keys[order])) - 1
    return ranks, int(ranks.max(initial=-1)) + 1


def find_new(ordered: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of each sorted key whether it differs from the one before; NumPy's ``unique`` hashes, many times as slow."""
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return new


def _count(words: Words, texts: Integers, grams: Integers, size: int) -> Counts:
    keys = np.sort(texts * size + grams)
    starts = np.flatnonzero(find_new(keys))
    counts = np.diff(starts, append=len(keys))
    texts, grams = np.divmod(keys[starts], max(size, 1))
    predicted = int(np.searchsorted(texts, words.count))
    of_items = words.items[texts] * size + grams  # sorted on the predictions' side, as each item has one of them
    places = np.searchsorted(of_items[:predicted], of_items[predicted:])
    places = np.minimum(places, max(predicted - 1, 0))
    hits = np.flatnonzero(of_items[places] == of_items[predicted:]) if predicted else np.zeros(0, np.int64)
    return Counts(texts, grams, counts, size, predicted, hits + predicted, places[hits])
