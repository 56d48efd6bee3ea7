"""Find listed words in a text, in singular or plural.

The benchmarks' own programs tag and lemmatise with NLTK and its data, which must be fetched, and then keep listed
words. Here a word counts if it, or its singular by spelling rules, is in the list.
"""

import re
from collections.abc import Container, Iterator

WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "feet": "foot", "teeth": "tooth", "geese": "goose",
    "mice": "mouse", "oxen": "ox", "calves": "calf", "knives": "knife", "leaves": "leaf", "shelves": "shelf",
    "loaves": "loaf", "wolves": "wolf", "scarves": "scarf", "halves": "half", "wives": "wife",
}  # fmt: skip
PLURALS = (("ies", "y"), ("es", ""), ("s", ""))  # endings of plurals and their singulars


def words_in(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORD.findall(text.lower())


def singular_in(word: str, known: Container[str]) -> str | None:
    """Return the word or its singular, whichever is known, or ``None``."""
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
