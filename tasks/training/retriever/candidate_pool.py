"""Pool of texts for ADPO's retriever, and the texts allowed for a pair (paper 000, sections 4.2 and 6.1).

The pool is the distinct chosen texts of the training split that no held-out row has (``material``);
case, spaces and punctuation do not distinguish texts. A pair never gets a text equal to one of its
own nor, where nothing changed between its images, any text that states so (ours: in rendered and
CLEVR-like collections one such text is true of thousands of pairs). Candidates are drawn uniformly
from the rest, regardless of how many rows have a text.

Each draw has its own generator, seeded by seed, step, row and use. So resumed runs, and other
numbers of devices, draw the same. Needs NumPy; memory: 8 bytes per row and positive text, and the
texts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import make_key
from pairwright.tasks.texts.words import says_no_change

Places = NDArray[np.int64]
Use = Literal["candidates", "negatives"]
STREAMS: dict[Use, int] = {"candidates": 1, "negatives": 2}
NONE = -1  # stands for no text
MOST_CHARACTERS = 2000
CHANGED = r"(?:chang\w+|differ\w*|alter\w*|modif\w+|mov\w+|variations?|added|removed|replaced|missing|happen\w*|occurr\w*)"
SAME = re.compile(
    r"\b(?:unchanged|unaltered|unmodified|identical|indistinguishable|duplicates?"
    rf"|(?:no|not|zero|not one|without(?: any)?|hardly any|\w+n['’ ]t|never) (?:\w+ ){{0,4}}?{CHANGED}"
    rf"|(?:nothing|none|neither) (?:\w+ ){{0,4}}?{CHANGED}"
    r"|(?:is|are|was|were|remains?|stays?|stayed|remained|looks?|seems?|appears?|exactly|still|all|both|be)"
    r" (?:\w+ ){0,2}?(?:the )?same"
    r"|same (?:scene|image|photo\w*|picture|view|thing|content|as before)s?|just like before)\b",
    re.IGNORECASE,
)
EXCEPT = re.compile(
    r"\b(?:but|except|apart from|aside from|other than|however|though|only)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEntry:
    """Preference as the retriever sees it."""

    key: str  # of its ``PreferenceRow``
    pair: str  # subject of the row; all its chosen texts are positives
    chosen: str
    images: tuple[str, str]  # keys of its first and its last image
    in_pool: (
        bool  # whether its text may be a negative: of the training split, and in no other split
    )
    no_change: bool  # whether its text states that nothing changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Numbered texts, and the texts that each row must not get."""

    texts: tuple[str, ...]  # distinct, in alphabetical order; of equal ones the first
    no_change: NDArray[np.bool_]  # (T,) which texts state no change
    own: Places  # (n, K) each row's own texts, padded with ``NONE``
    trained: NDArray[np.bool_]  # (n,) which rows have their text in the pool
    unchanged: NDArray[np.bool_]  # (n,) which rows have a text that states no change
    marks: NDArray[np.uint64]  # (n,) the rows' seeds of random numbers

    def excluded(self, places: Places, ids: Places) -> NDArray[np.bool_]:
        """Return ``(B, M)``: which texts of ``ids`` (B, M) must not be a negative of the rows."""
        found = self.unchanged[places, None] & self.no_change[ids]
        for column in self.own[places].T:
            found |= ids == column[:, None]
        return found

    def draw(self, places: Places, size: int, *, seed: int, step: int) -> Places:
        """Return ``(B, size)`` distinct candidates of each row, padded with ``NONE``.

        Every allowed set is equally likely; it depends on ``seed``, ``step`` and the row alone.
        """
        found = np.full((len(places), size), NONE)
        for row, place, mark in zip(
            found, places.tolist(), self.marks[places].tolist(), strict=True
        ):
            allowed = np.ones(len(self.texts), dtype=bool)
            allowed[self.own[place][self.own[place] != NONE]] = False
            if self.unchanged[place]:
                allowed &= ~self.no_change
            left = np.flatnonzero(allowed)
            generator = generator_of(mark, seed=seed, step=step, use="candidates")
            some = generator.choice(left, min(size, len(left)), replace=False)
            row[: len(some)] = some
        return found


def make_pool(entries: Sequence[PoolEntry]) -> Pool:
    """Return the pool of some rows, by their position."""
    plain = [plain_text(entry.chosen) for entry in entries]
    texts: dict[str, str] = {}
    for words, entry in zip(plain, entries, strict=True):
        if entry.in_pool:
            texts[words] = min(texts.get(words, entry.chosen), entry.chosen)
    ordered = sorted(texts, key=texts.__getitem__)
    number = {words: place for place, words in enumerate(ordered)}
    of_pairs: dict[str, set[int]] = {}
    same_pairs = {entry.pair for entry in entries if entry.no_change}
    no_change = np.zeros(len(ordered), dtype=bool)
    for words, entry in zip(plain, entries, strict=True):
        own = of_pairs.setdefault(entry.pair, set())
        if words in number:
            own.add(number[words])
            no_change[number[words]] |= entry.no_change
    longest = max(map(len, of_pairs.values()), default=0)
    filled = [sorted(of_pairs[entry.pair]) for entry in entries]
    filled = [[*row, *[NONE] * (longest - len(row))] for row in filled]
    return Pool(
        texts=tuple(texts[words] for words in ordered),
        no_change=no_change,
        own=np.array(filled, dtype=np.int64).reshape(len(entries), longest),
        trained=np.array([entry.in_pool for entry in entries], dtype=bool),
        unchanged=np.array([entry.pair in same_pairs for entry in entries], dtype=bool),
        marks=np.array(
            [int(make_key("mark", entry.key)[:16], 16) for entry in entries], dtype=np.uint64
        ),
    )


def generator_of(mark: int, *, seed: int, step: int, use: Use) -> np.random.Generator:
    """Return the generator of a row's draw in a step."""
    return np.random.Generator(
        np.random.Philox(key=[mark, seed], counter=[0, 0, step, STREAMS[use]])
    )


def may_say_no_change(text: str) -> bool:
    """Return whether a text, or part of it, may state that nothing changed; a long one is read in part.

    False positives are harmless: such a text is only withheld from unchanged pairs, and its pair
    from such negatives.
    """
    text = " ".join(text[:MOST_CHARACTERS].split())
    return says_no_change(text) or bool(SAME.search(text) and not EXCEPT.search(text))
