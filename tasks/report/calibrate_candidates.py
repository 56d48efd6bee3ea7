"""Read the candidates of mining as columns: every anchor with every neighbour that was found for it, per embedder.

Reads the tables ``neighbours`` (raw, before any threshold) and ``images`` (keys only); writes nothing. A row group is
in memory at a time, some 100 bytes per candidate of it, and per image of the dataset 44 bytes for its key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from pairwright.tasks.report.tables import Tables

pc: Any = pyarrow.compute

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Images:
    """Hold the keys of all images; an image's number is its place among them."""

    keys: pa.StringArray

    @cached_property
    def numbers(self) -> NDArray[np.uint64]:
        """Return the first half of each key as a number."""
        digits = self.keys.to_numpy(zero_copy_only=False).astype("S32").view(np.uint8).reshape(-1, 32)[:, :16]
        halves = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0")).astype(np.uint8)
        return (halves[:, ::2] << 4 | halves[:, 1::2]).view(">u8").reshape(-1).astype(np.uint64)

    def places(self, keys: pa.Array) -> Integers:
        """Return the number of each key, -1 where there is no such image."""
        return pc.fill_null(pc.index_in(keys, value_set=self.keys), -1).to_numpy().astype(np.int64)

    def key(self, number: int) -> str:
        """Return an image's key."""
        return self.keys[number].as_py()


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Hold the candidates of some anchors, one entry per candidate in each array."""

    rows: int
    """How many anchors."""
    row: Integers
    """Which of them."""
    space: Integers
    """Number of the embedder."""
    anchor: Integers
    """Number of the anchor's image."""
    other: Integers
    """Number of the neighbour's image."""
    similarity: Floats

    def of(self, chosen: Mask) -> "Candidates":
        """Return some of them."""
        return Candidates(
            rows=self.rows,
            row=self.row[chosen],
            space=self.space[chosen],
            anchor=self.anchor[chosen],
            other=self.other[chosen],
            similarity=self.similarity[chosen],
        )


def read_images(tables: Tables) -> Images:
    """Return the keys of all images."""
    return Images(tables.read("images", ["key"]).column("key").cast(pa.string()).combine_chunks())


def stream_similarities(tables: Tables) -> Iterator[tuple[str, Floats]]:
    """Yield similarities, each time many of one embedder, in the order of the embedders."""
    for table in tables.stream("neighbours", ["embedders", "similarities"]):
        names, lists = (table.column(name).combine_chunks().flatten() for name in ("embedders", "similarities"))
        for name in names.unique().to_pylist():
            yield name, lists.filter(pc.equal(names, name)).flatten().to_numpy().astype(np.float64)


def stream_candidates(tables: Tables, embedders: tuple[str, ...], images: Images) -> Iterator[Candidates]:
    """Yield all candidates; those of one anchor come together."""
    for table in tables.stream("neighbours", ["subject", "embedders", "neighbours", "similarities"]):
        outer = table.column("similarities").combine_chunks()
        spaces = outer.flatten()
        row_of_space = np.repeat(np.arange(len(outer)), pc.list_value_length(outer).to_numpy())
        names = table.column("embedders").combine_chunks().flatten()
        code = pc.index_in(names, value_set=pa.array(embedders)).to_numpy().astype(np.int64)
        sizes = pc.list_value_length(spaces).to_numpy()
        row = np.repeat(row_of_space, sizes)
        others = table.column("neighbours").combine_chunks().flatten().flatten()
        yield Candidates(
            rows=len(table),
            row=row,
            space=np.repeat(code, sizes),
            anchor=images.places(table.column("subject").combine_chunks())[row],
            other=images.places(others),
            similarity=spaces.flatten().to_numpy().astype(np.float64),
        )


def find_joint(found: Candidates, embedders: int) -> tuple[Integers, Floats, Floats]:
    """Return the candidates that every embedder found: row, lowest and highest similarity of each."""
    width = int(found.other.max(initial=0)) + 2
    names = found.row * width + found.other + 1
    order = np.argsort(names, kind="stable")
    names, similarity = names[order], found.similarity[order]
    starts = np.flatnonzero(np.diff(names, prepend=-1))
    if not len(starts):
        return np.empty(0, np.int64), np.empty(0), np.empty(0)
    whole = np.diff(starts, append=len(names)) == embedders
    low, high = np.minimum.reduceat(similarity, starts), np.maximum.reduceat(similarity, starts)
    return names[starts][whole] // width, low[whole], high[whole]
