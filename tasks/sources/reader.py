"""Readers: how one kind of source is recognised, listed and read.

A reader file ends with its ``READER``; the command line's list of sources, the stages of a build and its shard sizes
follow from it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ImageRow, ItemRow, PairRow, PreferenceRow, Row

Given = ImageRow | PairRow | ComparisonRow | PreferenceRow
Read = Given | Dropped | Failed


def never(_: str) -> bool:
    """Recognise no path: the kind must be named."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Declaration of one kind of source."""

    kind: str
    """Text before the colon: "folder" in ``folder:PATH``."""
    about: str
    """Description in one line."""
    example: str
    """Example of a source on the command line."""
    details: str = ""
    """Layout of its files and the fields that are read, for ``pairwright sources KIND``."""
    list_items: Callable[[SourceConfig, int | None], Iterator[ItemRow]]
    """``list_items(config, limit)`` yields the first ``limit`` items of the source, or all, in its own order, without
    reading pixels. It raises ``SourceError`` if the source does not exist or is empty."""
    read_items: Callable[[Sequence[ItemRow], SourceConfig], Iterator[Read]]
    """``read_items(items, config)`` yields all rows of the items, all of one item before the next; for an item that
    cannot be read completely, one ``Dropped`` or ``Failed`` only."""
    brings: tuple[type[Row], ...] = ()
    """Types of rows that it yields beside images; the stages that would make these do not run."""
    recognises: Callable[[str], bool] = never
    """Function that returns whether a path without a kind is one of its sources; it may read names, not large files."""
    needs_path: bool = True
    """Whether a path must follow the colon."""
    rows_per_shard: int = 64
    """Items of a shard: at most tens of seconds of work."""
