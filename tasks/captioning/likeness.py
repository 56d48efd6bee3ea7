"""Say how alike two halves of descriptions are, by their content words (ours).

What is compared are these words and the pairs of neighbours among them, as multisets, by Dice's coefficient: so "a cat
left of a dog" and "a dog left of a cat" are not quite alike.
"""

from collections import Counter
from itertools import pairwise

from pairwright.schemas.content_words import content_words


def likeness(one: str, other: str) -> float:
    """Return how alike two texts are, from 0 (no content word in common, or none at all) to 1."""
    first, second = (_counted(content_words(text)) for text in (one, other))
    total = first.total() + second.total()
    return 2 * (first & second).total() / total if total else 0.0


def _counted(words: list[str]) -> Counter[tuple[str, ...]]:
    return Counter([*((word,) for word in words), *pairwise(words)])
