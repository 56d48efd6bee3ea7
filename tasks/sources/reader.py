"""What a reader is: how one kind of source is recognised, listed and read.

A reader file ends with its ``READER``; the command line's list of sources, the stages of a build and the sizes of its
shards follow from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ImageRow, ItemRow, PairRow, PreferenceRow, Row

Given = ImageRow | PairRow | ComparisonRow | PreferenceRow
Read = Given | Dropped | Failed


def never(_: str) -> bool:
    """Recognise no path: the kind has to be named."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Declaration of one kind of source."""

    kind: str
    """What stands before the colon: "folder" in ``folder:PATH``."""
    about: str
    """What it is, in one line for people."""
    example: str
    """A source as it is written on the command line."""
    details: str = ""
    """How its files look and what is read of them, for ``pairwright sources KIND``."""
    list_items: Callable[[SourceConfig, int | None], Iterator[ItemRow]]
    """``list_items(config, limit)`` yields what the source holds, in its own order and without reading pixels: the
    first ``limit`` items, or all. It raises ``SourceError`` when there is no such source, or nothing in it."""
    read_items: Callable[[Sequence[ItemRow], SourceConfig], Iterator[Read]]
    """``read_items(items, config)`` yields everything that the items hold, all of one item before the next; for an item
    that cannot be had whole, one ``Dropped`` or ``Failed`` and nothing else."""
    brings: tuple[type[Row], ...] = ()
    """Rows that it yields beside images. The stages that would make them do not run."""
    recognises: Callable[[str], bool] = never
    """Whether a path without a kind is one of its sources; it may look at names, not into large files."""
    needs_path: bool = True
    """Whether something stands behind the colon."""
    rows_per_shard: int = 64
    """Items of a shard: tens of seconds of work at the most."""
