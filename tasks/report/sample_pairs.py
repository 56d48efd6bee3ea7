"""Choose the pairs that a report shows: a fixed sample over all splits and the whole range of similarity.

Reads keys and similarities of ``PairRow`` and the split of ``SplitRow``, as columns; some 200 bytes per pair are held
in memory, none of them as Python objects. The same dataset gives the same sample.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from pairwright.tasks.report.tables import Tables

pc: Any = pyarrow.compute
SEED = 20
KEY = 32
"""Characters of a key."""


def sample_pairs(tables: Tables, number: int) -> list[str]:
    """Return the keys of at most so many pairs, in a mixed order."""
    pairs = tables.read("pairs", ["key", "similarity"])
    if not len(pairs) or not number:
        return []
    splits = tables.read("splits", ["subject", "split"])
    places = pc.index_in(pairs.column("key"), value_set=splits.column("subject").combine_chunks())
    of_pair = _words(pc.fill_null(splits.column("split").take(places), ""))
    keys = _fixed(pairs.column("key"))
    order = np.lexsort((keys, pairs.column("similarity").to_numpy()))
    chosen = choose(of_pair[order], number)
    return [key.decode() for key in keys[order[chosen]].tolist()]


def _words(column: pa.ChunkedArray) -> NDArray[np.str_]:
    """Return texts of which there are few different ones."""
    coded = column.combine_chunks().dictionary_encode()
    return np.array(coded.dictionary.to_pylist(), np.str_)[coded.indices.to_numpy()]


def _fixed(keys: pa.ChunkedArray) -> NDArray[np.bytes_]:
    """Return keys, which are all of one length."""
    array = keys.combine_chunks().cast(pa.binary()).cast(pa.binary(KEY))
    return np.frombuffer(array.buffers()[1], f"S{KEY}", len(array), array.offset * KEY)


def choose(splits: NDArray[np.str_], number: int) -> NDArray[np.int64]:
    """Return positions in a list ordered by similarity: every split is there, each evenly over its range."""
    rng = np.random.default_rng(SEED)
    names, counts = np.unique(splits, return_counts=True)
    chosen: list[int] = []
    for name, quota in zip(names, share_out(counts.tolist(), number), strict=True):
        own = np.flatnonzero(splits == name)
        bounds = np.linspace(0, len(own), quota + 1).astype(np.int64)
        chosen += [int(own[rng.integers(low, high)]) for low, high in pairwise(bounds.tolist())]
    return rng.permutation(np.array(chosen, dtype=np.int64))


def share_out(counts: Sequence[int], number: int) -> list[int]:
    """Divide a number among splits by their size, but give each a sixth where it has as many."""
    number = min(number, sum(counts))
    shares = [min(count, number // 6) for count in counts]
    while sum(shares) < number:
        room = [count / (given + 1) if given < count else 0.0 for count, given in zip(counts, shares, strict=True)]
        shares[int(np.argmax(room))] += 1
    return shares
