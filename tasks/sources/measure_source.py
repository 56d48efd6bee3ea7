"""Measure the range of values of a source's images of more than 8 bits, before it is read.

Reads a sample of the listed items, their headers only unless they are deep. All images of a type of
number are then shown in one range, whichever pair or shard they are in.
"""

from collections.abc import Iterator, Sequence

import numpy as np

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
    """Yield listed items at equal distances."""
    counts: list[int] = []
    tables = [read_part(Part(folder, name)) for name in parts]
    counts = [len(table) for table in tables]
    total = sum(counts)
    chosen = np.unique(np.linspace(0, max(total - 1, 0), SAMPLE).astype(int))
    start = 0
    for table in tables:
        inside = chosen[(chosen >= start) & (chosen < start + len(table))] - start
        yield from from_table(table.take(inside), ItemRow)
        start += len(table)
