"""ROUGE-L of a corpus, by coco-caption's rules (Lin 2004; pycocoevalcap's ``Rouge``).

Of the longest common subsequences with an item's references, the best precision and the best recall, each for itself,
make the F-measure with a beta of 1.2. Words are parted by one space each: a text without any is one empty word there,
and so it is here.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pairwright.tasks.evaluation.corpus import Corpus, Measured, measure_mean

BETA = 1.2
NAME = "ROUGE-L"


def measure_rouge(corpus: Corpus) -> Measured:
    """Return ROUGE-L of each item; the corpus' score is their mean."""
    pairs = zip(corpus.predictions, corpus.references, strict=True)
    return measure_mean(NAME, np.array([_score(prediction, references) for prediction, references in pairs]))


def _score(prediction: str, references: Sequence[str]) -> float:
    words = prediction.split(" ")
    places = _places(words)
    precision = recall = 0.0
    for reference in references:
        theirs = reference.split(" ")
        common = longest_common(places, len(words), theirs)
        precision, recall = max(precision, common / len(words)), max(recall, common / len(theirs))
    if not precision:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _places(words: Sequence[str]) -> dict[str, int]:
    """Return at which places each word is, as bits."""
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        places[word] = places.get(word, 0) | 1 << place
    return places


def longest_common(places: Mapping[str, int], length: int, others: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of a text of ``length`` words and another one.

    A row of the usual table is one number: a bit is off where the row rises (Hyyro 2004, "Bit-parallel LCS-length
    computation revisited"). A step is one addition, however long the text.
    """
    every = (1 << length) - 1
    level = every
    for mask in filter(None, map(places.get, others)):
        met = level & mask
        level = (level + met) | (level - met)
    return length - (level & every).bit_count()
