"""Pool of texts for ADPO's retriever, and the texts allowed for a pair.

See paper 000, sections 4.2 and 6.1. The pool is the distinct chosen texts of the training split
that no held-out row has, but for common sentences (``material``); case, spaces and punctuation do
not distinguish texts. With ``adpo.own_makers`` a row also has its own rejected texts of some
makers, which no other row gets (ours). A pair never gets a text equal to one of its own nor, where
nothing changed between its images, any text that states so (ours: in rendered and CLEVR-like
collections one such text is true of thousands of pairs). Candidates are drawn uniformly from the
rest, regardless of how many rows have a text.

Each draw has its own generator, seeded by seed, step, row and use. So resumed runs, and other
numbers of devices, draw the same. Needs NumPy; memory: 8 bytes per row and positive text, and the
texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.plain_text import plain_text
from pairwright.schemas.rows import make_key
from pairwright.tasks.texts.common_texts import may_say_no_change

Places = NDArray[np.int64]
Use = Literal["candidates", "negatives"]
STREAMS: dict[Use, int] = {"candidates": 1, "negatives": 2}
NONE = -1  # stands for no text


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEntry:
    """Preference as the retriever sees it."""

    key: str  # of its ``PreferenceRow``
    pair: str  # subject of the row; all its chosen texts are positives
    chosen: str
    images: tuple[str, str]  # keys of its first and its last image
    # whether its text may be a negative: of the training split, and in no other split
    in_pool: bool
    no_change: bool  # whether its text states that nothing changed
    rejected: tuple[str, ...] = ()  # rejected texts of the row itself, which no other row may get


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Numbered texts, and the texts that each row must not get."""

    texts: tuple[str, ...]  # distinct, in alphabetical order; of equal ones the first
    no_change: NDArray[np.bool_]  # (T,) which texts state no change
    positives: Places  # (n, K) each row's own texts, padded with ``NONE``
    trained: NDArray[np.bool_]  # (n,) which rows have their text in the pool
    rejected: Places  # (n, K) each row's own rejected texts, padded with ``NONE``
    shared: NDArray[np.bool_]  # (T,) which texts any row may get
    unchanged: NDArray[np.bool_]  # (n,) which rows have a text that states no change
    marks: NDArray[np.uint64]  # (n,) the rows' seeds of random numbers

    def excluded(self, places: Places, ids: Places) -> NDArray[np.bool_]:
        """Return ``(B, M)``: which texts of ``ids`` (B, M) must not be a negative of the rows."""
        excluded = self.unchanged[places, None] & self.no_change[ids]
        for column in self.positives[places].T:
            excluded |= ids == column[:, None]
        is_own = np.zeros(ids.shape, dtype=bool)
        for column in self.rejected[places].T:
            is_own |= ids == column[:, None]
        return excluded | (~self.shared[ids] & ~is_own)

    def draw(
        self,
        places: Places,
        size: int,
        *,
        seed: int,
        step: int,
    ) -> Places:
        """Return ``(B, size)`` distinct candidates of each row, padded with ``NONE``.

        The row's own rejected texts come first; every allowed set of others is equally likely. It
        depends on ``seed``, ``step`` and the row alone.
        """
        candidates = np.full((len(places), size), NONE)
        marks = self.marks[places].tolist()
        for row, row_index, mark in zip(candidates, places.tolist(), marks, strict=True):
            numbers = self._own_of(row_index)[:size]
            allowed = np.setdiff1d(self._allowed(row_index), numbers)
            generator = generator_of(
                mark,
                seed=seed,
                step=step,
                use="candidates",
            )
            count = min(size - len(numbers), len(allowed))
            drawn = [*numbers, *generator.choice(allowed, count, replace=False)]
            row[: len(drawn)] = drawn
        return candidates

    def _own_of(self, row_index: int) -> Places:
        """Return the row's own rejected texts that may be its negatives."""
        numbers = self.rejected[row_index]
        numbers = numbers[(numbers != NONE) & ~np.isin(numbers, self.positives[row_index])]
        return numbers[~self.no_change[numbers]] if self.unchanged[row_index] else numbers

    def _allowed(self, row_index: int) -> Places:
        """Return the texts that may be a negative of a row."""
        allowed = self.shared.copy()
        positives = self.positives[row_index]
        allowed[positives[positives != NONE]] = False
        if self.unchanged[row_index]:
            allowed &= ~self.no_change
        return np.flatnonzero(allowed)


def make_pool(entries: Sequence[PoolEntry]) -> Pool:
    """Return the pool of some rows, by their position."""
    plain_texts = [plain_text(entry.chosen) for entry in entries]
    texts: dict[str, str] = {}
    for plain, entry in zip(plain_texts, entries, strict=True):
        if entry.in_pool:
            texts[plain] = min(texts.get(plain, entry.chosen), entry.chosen)
    shared = frozenset(texts)
    own_texts = [_read_own(entry) for entry in entries]
    for of_row in own_texts:
        for plain, text in of_row.items():
            texts.setdefault(plain, text)
    ordered = sorted(texts, key=texts.__getitem__)
    numbers = {plain: number for number, plain in enumerate(ordered)}
    no_change = np.zeros(len(ordered), dtype=bool)
    positives: dict[str, set[int]] = {}  # by pair
    for plain, entry in zip(plain_texts, entries, strict=True):
        pair_texts = positives.setdefault(entry.pair, set())
        if plain in numbers:
            pair_texts.add(numbers[plain])
            no_change[numbers[plain]] |= entry.no_change
    for number, plain in enumerate(ordered):
        if plain not in shared:
            no_change[number] = may_say_no_change(texts[plain])
    return Pool(
        texts=tuple(texts[plain] for plain in ordered),
        no_change=no_change,
        positives=_pad([positives[entry.pair] for entry in entries]),
        rejected=_pad([{numbers[plain] for plain in of_row} for of_row in own_texts]),
        shared=np.array([plain in shared for plain in ordered], dtype=bool),
        trained=np.array([entry.in_pool for entry in entries], dtype=bool),
        unchanged=_mark_unchanged(entries),
        marks=np.array([_make_mark(entry) for entry in entries], dtype=np.uint64),
    )


def _read_own(entry: PoolEntry) -> dict[str, str]:
    """Return the own rejected texts of a row of the training split, by their plain form."""
    return {plain_text(text): text for text in entry.rejected}


def _mark_unchanged(entries: Sequence[PoolEntry]) -> NDArray[np.bool_]:
    """Return (n,): which rows' pairs have a text that states no change."""
    pairs = {entry.pair for entry in entries if entry.no_change}
    return np.array([entry.pair in pairs for entry in entries], dtype=bool)


def _make_mark(entry: PoolEntry) -> int:
    return int(make_key("mark", entry.key)[:16], 16)


def _pad(rows: Sequence[set[int]]) -> Places:
    """Return the numbers of each row, ascending, padded with ``NONE``."""
    width = max(map(len, rows), default=0)
    padded = np.full((len(rows), width), NONE, dtype=np.int64)
    for row, numbers in zip(padded, rows, strict=True):
        row[: len(numbers)] = sorted(numbers)
    return padded


def generator_of(
    mark: int,
    *,
    seed: int,
    step: int,
    use: Use,
) -> np.random.Generator:
    """Return the generator of a row's draw in a step."""
    counter = [0, 0, step, STREAMS[use]]
    bits = np.random.Philox(key=[mark, seed], counter=counter)
    return np.random.Generator(bits)
