"""Cut a sentence that is longer than a text tower takes into pieces that fit, at the ends of clauses (ours).

CLIP's tokenizer drops what is behind its 77th token without a word. A piece ends behind a comma or its like, or before
a word that begins a clause, where there is such a place in its second half; else it ends wherever it is full. A word
that is no word (a line of base64) is taken apart, so that no piece is too long.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

CLAUSE_END = re.compile(r"[,;:.!?…)\]–—][\"'”’]*$|^[–—-]$")
OPENING = (
    "and but or while whereas which who whose where when with as because although though that so then behind next "
    "beside near under above"
)
OPENERS = frozenset(OPENING.split())
"""What a clause usually begins with."""
LONGEST_WORD = 100
BYTES_PER_CHARACTER = 4
"""A tokenizer of bytes makes no more tokens of a character."""
Count = Callable[[str], int]


def cut_text(text: str, count: Count, most: int) -> tuple[str, ...]:
    """Return the text, put on one line, in pieces of at most so many tokens each; itself where it fits.

    Args:
        text: any text; nothing of it is lost but the kind of its white space.
        count: how many tokens a text has, with the marks of its start and its end.
        most: how many tokens a piece may have.
    """
    words = [part for word in text.split() for part in _parts(word, count, most)]
    pieces: list[str] = []
    while words:
        fitting = max(_fitting(words, count, most), 1)
        end = fitting if fitting == len(words) else _clause_end(words, fitting)
        pieces.append(" ".join(words[:end]))
        words = words[end:]
    return tuple(pieces)


def _parts(word: str, count: Count, most: int) -> Iterator[str]:
    """Yield a word, or what it is cut into where it does not fit alone."""
    size = max((most - 2) // BYTES_PER_CHARACTER, 1)
    if len(word) <= size or (len(word) <= LONGEST_WORD and count(word) <= most):
        yield word
    else:
        yield from (word[start : start + size] for start in range(0, len(word), size))


def _fitting(words: Sequence[str], count: Count, most: int) -> int:
    """Return how many of the words fit; each has at least one token, so there is no need to look far."""
    return bisect_right(range(1, min(len(words), most) + 1), most, key=lambda end: count(" ".join(words[:end])))


def _clause_end(words: Sequence[str], fitting: int) -> int:
    ends = (end for end in range(fitting, fitting // 2, -1) if _ends(words[end - 1], words[end]))
    return next(ends, fitting)


def _ends(word: str, following: str) -> bool:
    return bool(CLAUSE_END.search(word)) or following.lower() in OPENERS
