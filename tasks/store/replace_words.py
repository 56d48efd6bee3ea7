"""Replace a share of a text's words by others, as paper 001 (A.3) does to measure what noise in texts costs.

    replace_words("A red ball lies on the grass.", 0.4, key=row.key, vocabulary=COMMON_WORDS)

The paper says 20 to 80 %, and neither which words come in nor which are taken: here those that go are drawn evenly, and
so are those that come, from a vocabulary, never the word that stood there. What stands between words stays, so that a
sentence keeps its form. What is drawn depends on the key, the share and the text alone.
"""

from collections.abc import Sequence

import numpy as np

from pairwright.schemas.common_words import COMMON_WORDS
from pairwright.schemas.content_words import WORD
from pairwright.schemas.rows import make_key


def replace_words(text: str, share: float, *, key: str, vocabulary: Sequence[str] = COMMON_WORDS) -> str:
    """Return the text with ``share`` of its words replaced, rounded half up to a whole number of them.

    Args:
        text: words are runs of letters and digits, with apostrophes and hyphens inside.
        share: 0 to 1.
        key: what the text belongs to; the same key gives the same words.
        vocabulary: what words come from; upper and lower case are one word.

    Raises:
        ValueError: the share is none, or a word has no other one in the vocabulary.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share {share}: not between 0 and 1")
    found = list(WORD.finditer(text))
    rng = np.random.default_rng(int(make_key("replace", key, share, text), 16))
    places = rng.choice(len(found), int(share * len(found) + 0.5), replace=False) if found else ()
    pieces, end = list[str](), 0
    for match in (found[place] for place in sorted(places)):
        pieces += [text[end : match.start()], _other(match[0], vocabulary, rng)]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _other(word: str, vocabulary: Sequence[str], rng: np.random.Generator) -> str:
    """Return another word of the vocabulary, all of them equally likely; few draws, since few are the same word."""
    for _ in range(100):
        drawn = vocabulary[int(rng.integers(len(vocabulary)))] if vocabulary else word
        if drawn.casefold() != word.casefold():
            return drawn
    raise ValueError(f"no other word than {word!r} is in the vocabulary")
