"""The texts that ADPO's retriever chooses from, and which of them a pair may get (paper 000, sections 4.2 and 6.1).

The pool is the distinct chosen texts of the training split that no held-out row has (``material``); texts that differ
in case, spaces and punctuation only are one. A pair never gets a text of its own, nor one equal to it, nor, where
nothing changed between its images, any text that says so (ours: in rendered and CLEVR-like collections one such text is
true of thousands of pairs). Each time, some are drawn of the rest, all equally likely, however many rows have it.

Each draw has a generator of its own, made of a seed, a step, a row and a use, and there is no state to keep. So a
resumed run, and one on another number of devices, draws for a row what the first would have drawn.

Reads and writes nothing; needs NumPy. State: 8 bytes per row and positive text, and the texts.
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
NONE = -1
"""Stands for no text."""
MOST_CHARACTERS = 2000
CHANGED = (
    r"(?:chang\w+|differ\w*|alter\w*|modif\w+|mov\w+|variations?|added|removed|replaced|missing|happen\w*|occurr\w*)"
)
SAME = re.compile(
    r"\b(?:unchanged|unaltered|unmodified|identical|indistinguishable|duplicates?"
    rf"|(?:no|not|zero|not one|without(?: any)?|hardly any|\w+n['’ ]t|never) (?:\w+ ){{0,4}}?{CHANGED}"
    rf"|(?:nothing|none|neither) (?:\w+ ){{0,4}}?{CHANGED}"
    r"|(?:is|are|was|were|remains?|stays?|stayed|remained|looks?|seems?|appears?|exactly|still|all|both|be)"
    r" (?:\w+ ){0,2}?(?:the )?same"
    r"|same (?:scene|image|photo\w*|picture|view|thing|content|as before)s?|just like before)\b",
    re.IGNORECASE,
)
EXCEPT = re.compile(r"\b(?:but|except|apart from|aside from|other than|however|though|only)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One row of a run, as far as the retriever knows it."""

    key: str
    """Of its ``PreferenceRow``."""
    pair: str
    """What the row is about; all chosen texts of it are positives of the row."""
    chosen: str
    images: tuple[str, str]
    """Keys of its first and its last image."""
    in_pool: bool
    """Whether its text may be another pair's negative: rows of the training split whose text no other split has."""
    no_change: bool
    """Whether its text says that the images show the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The texts, by number, and what each row (by its place among the entries) may not get."""

    texts: tuple[str, ...]
    """Distinct ones, in the order of the alphabet; of equal ones the first."""
    no_change: NDArray[np.bool_]
    """(T,) which of them say that nothing changed."""
    own: Places
    """(n, K) which texts are a row's own, filled up with ``NONE``."""
    trained: NDArray[np.bool_]
    """(n,) which rows are of the training split."""
    unchanged: NDArray[np.bool_]
    """(n,) which rows have a text that says that nothing changed."""
    marks: NDArray[np.uint64]
    """(n,) what random numbers know the rows by."""

    def excluded(self, places: Places, ids: Places) -> NDArray[np.bool_]:
        """Return ``(B, M)``: which texts of ``ids`` (B, M) may not be a negative of the rows."""
        found = self.unchanged[places, None] & self.no_change[ids]
        for column in self.own[places].T:
            found |= ids == column[:, None]
        return found

    def everything(self, places: Places) -> Places:
        """Return ``(B, T)``: the numbers of all texts, for each row."""
        return np.broadcast_to(np.arange(len(self.texts)), (len(places), len(self.texts)))

    def draw(self, places: Places, size: int, *, seed: int, step: int) -> Places:
        """Return ``(B, size)``: the candidates of each row, none twice; ``NONE`` behind them where there are fewer.

        Every set of so many texts of those that a row may get is equally likely. What a row gets depends on ``seed``,
        ``step`` and the row alone.
        """
        found = np.full((len(places), size), NONE)
        for row, place, mark in zip(found, places.tolist(), self.marks[places].tolist(), strict=True):
            allowed = np.ones(len(self.texts), dtype=bool)
            allowed[self.own[place][self.own[place] != NONE]] = False
            if self.unchanged[place]:
                allowed &= ~self.no_change
            left = np.flatnonzero(allowed)
            generator = generator_of(mark, seed=seed, step=step, use="candidates")
            some = generator.choice(left, min(size, len(left)), replace=False)
            row[: len(some)] = some
        return found


def make_pool(entries: Sequence[Entry]) -> Pool:
    """Return the pool of some rows; places count in the order of the entries."""
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
        marks=np.array([int(make_key("mark", entry.key)[:16], 16) for entry in entries], dtype=np.uint64),
    )


def generator_of(mark: int, *, seed: int, step: int, use: Use) -> np.random.Generator:
    """Return what draws for a row, by its mark, in a step."""
    return np.random.Generator(np.random.Philox(key=[mark, seed], counter=[0, 0, step, STREAMS[use]]))


def may_say_no_change(text: str) -> bool:
    """Return whether a text, or a part of it, may say that nothing changed; a long one is read in part.

    It errs on one side: a text that is wrongly taken to say so is only spared the pairs without a change, and such a
    pair the negative.
    """
    text = " ".join(text[:MOST_CHARACTERS].split())
    return says_no_change(text) or bool(SAME.search(text) and not EXCEPT.search(text))
