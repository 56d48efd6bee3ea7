"""Find the words of a list in a text, also where they stand in the plural.

The benchmarks' own programs tag and lemmatise with NLTK and its data, which have to be fetched. What they keep are
words of a list, so that here each word of a text counts that is in the list, or whose singular by the rules of spelling
is.
"""

import re
from collections.abc import Container, Iterator

WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "feet": "foot", "teeth": "tooth", "geese": "goose",
    "mice": "mouse", "oxen": "ox", "calves": "calf", "knives": "knife", "leaves": "leaf", "shelves": "shelf",
    "loaves": "loaf", "wolves": "wolf", "scarves": "scarf", "halves": "half", "wives": "wife",
}  # fmt: skip
PLURALS = (("ies", "y"), ("es", ""), ("s", ""))
"""Endings of plurals, and of their singulars."""


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


def singular_in(word: str, known: Container[str]) -> str | None:
    """Return the word itself or its singular, whichever is known, or ``None``."""
    return next((one for one in _forms(word) if one in known), None)


def _forms(word: str) -> Iterator[str]:
    yield word
    if word in IRREGULAR:
        yield IRREGULAR[word]
    elif word.endswith("men"):
        yield f"{word[:-3]}man"
    for ending, instead in PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            yield word.removesuffix(ending) + instead
