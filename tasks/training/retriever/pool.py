"""The texts that ADPO's retriever chooses from, and which of them a pair may get (paper 000, sections 4.2 and 6.1).

The pool is the distinct chosen texts of the training split; texts that differ in case, spaces and punctuation only are
one. A pair never gets a text of its own, nor one equal to it, nor, where nothing changed between its images, any text
that says so (ours: in rendered and CLEVR-like collections one such text is true of thousands of pairs). Each time, some
are drawn of the rest, all equally likely, however many rows have the text (ours).

Reads and writes nothing; needs NumPy. State: 8 bytes per row and positive text, and the texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.plain_text import plain_text
from pairwright.tasks.training.retriever.counters import Numbers, draw_bits, marks_of

Places = NDArray[np.int64]
NONE = -1
"""Stands for no text."""
DENSE = 4
"""Where fewer texts than this multiple of the candidates are left to a pair, the whole pool is shuffled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Be one row of a run, as far as the retriever knows it."""

    key: str
    """Of its ``PreferenceRow``."""
    pair: str
    """What the row is about; all chosen texts of it are positives of the row."""
    chosen: str
    images: tuple[str, str]
    """Keys of its first and its last image."""
    in_pool: bool
    """Whether its text may be another pair's negative: rows of the training split."""
    no_change: bool
    """Whether its text says that the images show the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Hold the texts, by number, and what each row (by its place among the entries) may not get."""

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
    marks: Numbers
    """(n,) what random numbers know the rows by."""

    def excluded(self, places: Places, ids: Places) -> NDArray[np.bool_]:
        """Return ``(B, M)``: which texts of ``ids`` (B, M) may not be a negative of the rows."""
        found = self.unchanged[places, None] & self.no_change[ids]
        for column in self.own[places].T:
            found |= ids == column[:, None]
        return found

    def left(self, places: Places) -> Places:
        """Return ``(B,)``: how many texts each row may get."""
        own = self.own[places]
        there = (own != NONE).sum(1)
        twice = ((own != NONE) & self.no_change[own]).sum(1) if len(self.texts) else there
        barred = np.where(self.unchanged[places], int(self.no_change.sum()) - twice, 0)
        return len(self.texts) - there - barred

    def draw(self, places: Places, size: int, *, seed: int, step: int) -> Places:
        """Return ``(B, size)``: the candidates of each row, none twice; ``NONE`` behind them where there are fewer.

        Every set of so many texts of those that a row may get is equally likely. What a row gets depends on ``seed``,
        ``step`` and the row alone.
        """
        left = self.left(places)
        if not len(places) or left.max() <= 0:
            return np.full((len(places), size), NONE)
        if left.min() < DENSE * size:
            return self._shuffle(places, size, seed=seed, step=step)
        return self._pick(places, size, seed=seed, step=step)

    def _shuffle(self, places: Places, size: int, *, seed: int, step: int) -> Places:
        """Draw by putting the whole pool in a random order."""
        everything = np.broadcast_to(np.arange(len(self.texts)), (len(places), len(self.texts)))
        order = draw_bits(self.marks[places], len(self.texts), seed=seed, step=step, use="candidates")
        barred = self.excluded(places, everything)
        ranked = np.lexsort((order, barred), axis=1)[:, :size]
        found = np.where(np.take_along_axis(barred, ranked, axis=1), NONE, ranked)
        return np.pad(found, ((0, 0), (0, size - found.shape[1])), constant_values=NONE)

    def _pick(self, places: Places, size: int, *, seed: int, step: int) -> Places:
        """Draw one by one, passing over what came before and what is excluded; all rows at once."""
        many = size + size // 2 + 16
        while True:
            bits = draw_bits(self.marks[places], many, seed=seed, step=step, use="candidates")
            ids = (bits % np.uint64(len(self.texts))).astype(np.int64)
            barred = self.excluded(places, ids) | _repeated(ids)
            if ((~barred).sum(1) >= size).all():
                first = np.argsort(barred, axis=1, kind="stable")[:, :size]
                return np.take_along_axis(ids, first, axis=1)
            many *= 2


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
    same_pairs: set[str] = set()
    no_change = np.zeros(len(ordered), dtype=bool)
    for words, entry in zip(plain, entries, strict=True):
        of_pairs.setdefault(entry.pair, set()).update({number[words]} if words in number else ())
        same_pairs.update({entry.pair} if entry.no_change else ())
        if words in number:
            no_change[number[words]] |= entry.no_change
    return Pool(
        texts=tuple(texts[words] for words in ordered),
        no_change=no_change,
        own=_fill([sorted(of_pairs[entry.pair]) for entry in entries]),
        trained=np.array([entry.in_pool for entry in entries], dtype=bool),
        unchanged=np.array([entry.pair in same_pairs for entry in entries], dtype=bool),
        marks=marks_of(entry.key for entry in entries),
    )


def _fill(lists: Sequence[Sequence[int]]) -> Places:
    """Return lists of numbers as one array, filled up with ``NONE``."""
    longest = max(map(len, lists), default=0)
    return np.array([[*row, *[NONE] * (longest - len(row))] for row in lists], dtype=np.int64).reshape(
        len(lists), longest
    )


def _repeated(ids: Places) -> NDArray[np.bool_]:
    """Return which numbers stand in their row already, further to the left."""
    order = np.argsort(ids, axis=1, kind="stable")
    ranked = np.take_along_axis(ids, order, axis=1)
    again = np.zeros(ids.shape, dtype=bool)
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
    return again
