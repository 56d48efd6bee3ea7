"""Sentences that many pairs have: which ones would give away a held-out answer if rejected.

Training must not reject what is right of a held-out pair. That is about a sentence of that pair:
one that several pairs of the training split have, such as "nothing has changed", is nobody's own,
and training also prefers it. The rule is the same for retrieved and random texts, for ADPO's pool
and for the report.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from pairwright.schemas.plain_text import plain_text
from pairwright.tasks.texts.words import says_no_change

COMMON = 3
"""Number of pairs of the training split that make a sentence a common one (ours)."""
TRAIN = "train"
MOST_CHARACTERS = 2000
CHANGED = (
    r"(?:chang\w+|differ\w*|alter\w*|modif\w+|mov\w+|variations?|added|removed|replaced|missing"
    r"|happen\w*|occurr\w*)"
)
SAME = re.compile(
    r"\b(?:unchanged|unaltered|unmodified|identical|indistinguishable|duplicates?"
    r"|(?:no|not|zero|not one|without(?: any)?|hardly any|\w+n['’ ]t|never)"
    rf" (?:\w+ ){{0,4}}?{CHANGED}"
    rf"|(?:nothing|none|neither) (?:\w+ ){{0,4}}?{CHANGED}"
    r"|(?:is|are|was|were|remains?|stays?|stayed|remained|looks?|seems?|appears?|exactly|still|all"
    r"|both|be)"
    r" (?:\w+ ){0,2}?(?:the )?same"
    r"|same (?:scene|image|photo\w*|picture|view|thing|content|as before)s?|just like before)\b",
    re.IGNORECASE,
)
EXCEPT = re.compile(
    r"\b(?:but|except|apart from|aside from|other than|however|though|only)\b", re.IGNORECASE
)


def find_common(texts: Iterable[tuple[str, str, str]], train: str = TRAIN) -> frozenset[str]:
    """Return the sentences, as ``plain_text``, of at least ``COMMON`` pairs of a split.

    ``texts``: split, pair and sentence.
    """
    pairs: dict[str, set[str]] = defaultdict(set)
    for split, pair, text in texts:
        if split == train:
            pairs[plain_text(text)].add(pair)
    return frozenset(plain for plain, keys in pairs.items() if len(keys) >= COMMON)


def may_say_no_change(text: str) -> bool:
    """Return whether a text, or part of it, may state that nothing changed.

    A long one is read in part. False positives are harmless: such a text is only withheld from
    unchanged pairs, and its pair from such negatives.
    """
    text = " ".join(text[:MOST_CHARACTERS].split())
    if says_no_change(text):
        return True
    return bool(SAME.search(text)) and not EXCEPT.search(text)
