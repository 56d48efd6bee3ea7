"""Measure the range of values of a source's images of more than 8 bits, before it is read.

Reads a sample of the listed items, their headers only unless they are deep. All images of a type of
number are then shown in one range, whichever pair or shard they are in.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.arrow import from_table
from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.images.depth import measure_ranges
from pairwright.tasks.sources import read_entry
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.sources.sources import items_by_source, readers_of
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, read_part

SAMPLE = 64
"""Items that are measured."""
MADE = ("scenes", "planted", "video")
"""Kinds of sources whose images are made, with 8 bits."""


def measure_source(folder: Folder, parts: Sequence[str], config: SourceConfig) -> tuple[str, ...]:
    """Return the range of each type of number among the listed items; empty: all have 8 bits."""
    are_made = all(reader.kind in MADE for reader in readers_of(config))
    if are_made or not isinstance(config.images.range, str):
        return ()
    sample = list(_sample_items(folder, parts))
    renderings: list[str] = []
    with read_entry.only_measuring(renderings):
        for source, items in items_by_source(sample, config):
            if source.kind in MADE:
                continue
            for _ in READERS[source.kind].read_items(items, source):
                pass
    return measure_ranges(renderings)


def _sample_items(folder: Folder, parts: Sequence[str]) -> Iterator[ItemRow]:
    """Yield about ``SAMPLE`` listed items, from all parts; one part is in memory at a time."""
    indices: list[int] = _choose_evenly(len(parts), SAMPLE).tolist()
    chosen_parts = [parts[index] for index in indices]
    for name in chosen_parts:
        table = read_part(Part(folder, name))
        inside = _choose_evenly(len(table), -(-SAMPLE // len(chosen_parts)))
        yield from from_table(table.take(inside), ItemRow)


def _choose_evenly(total: int, count: int) -> NDArray[np.int64]:
    """Return ``count`` of ``total`` numbers at equal distances; all, if there are fewer."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).astype(np.int64))
