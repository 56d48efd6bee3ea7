"""CIDEr-D of a corpus, by coco-caption's rules (Vedantam et al. 2015; pycocoevalcap's ``Cider``).

TF-IDF vectors of 1- to 4-grams; the document frequency of an n-gram is the number of items one of whose references
has it, in the corpus that is scored; an n-gram's weight in a prediction is clipped to the reference's; lengths that
differ (counted in 2-grams, as the reference implementation does) are punished by a Gaussian with a sigma of 6; the
mean over orders and references, times 10. One item alone has no document frequencies, and scores 0.
"""

import numpy as np

from pairwright.tasks.evaluation.corpus import Floats, Measured, Words, measure_mean
from pairwright.tasks.evaluation.count_ngrams import Counts, find_new

SIGMA = 6.0
NAME = "CIDEr-D"


def measure_cider(words: Words, counts: list[Counts]) -> Measured:
    """Return CIDEr-D of each item; the corpus' score is their mean."""
    similarity = sum(_similarities(words, one) for one in counts)
    length = np.maximum(words.lengths - 1, 0)
    items = words.items[words.count :]
    apart = (length[items] - length[words.count :]).astype(np.float64)
    of_references = similarity * np.exp(-(apart**2) / (2 * SIGMA**2)) / len(counts)
    sums = np.bincount(items, of_references, words.count)
    return measure_mean(NAME, 10 * sums / np.bincount(items, minlength=words.count))


def _similarities(words: Words, counts: Counts) -> Floats:
    """Return of each reference the clipped cosine of its vector and the prediction's, for one order."""
    weights = counts.counts * _rarity(words, counts)[counts.grams]
    norms = np.sqrt(np.bincount(counts.texts, weights**2, len(words.items)))
    own = weights[counts.references]
    products = np.bincount(
        counts.texts[counts.references], np.minimum(weights[counts.matched], own) * own, len(words.items)
    )[words.count :]
    scale = norms[words.items[words.count :]] * norms[words.count :]
    return np.divide(products, scale, out=np.zeros(len(products)), where=scale > 0)


def _rarity(words: Words, counts: Counts) -> Floats:
    """Return the inverse document frequency of each n-gram."""
    of_references = slice(counts.predicted, None)
    keys = np.sort(words.items[counts.texts[of_references]] * counts.size + counts.grams[of_references])
    documents = np.bincount(keys[find_new(keys)] % max(counts.size, 1), minlength=counts.size)
    return np.log(words.count) - np.log(np.maximum(documents, 1))
