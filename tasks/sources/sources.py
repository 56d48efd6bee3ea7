"""All sources of a build: its first one, and further ones that are read after it.

An item of a further source has the number of its source in its locator; all else about it is as if
its source were the only one, so that a row does not depend on what is built beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import ItemRow, PairRow, PreferenceRow, Row, make_key
from pairwright.tasks.sources.reader import Reader
from pairwright.tasks.sources.readers import READERS

MARK = "source {index}: "
"""Beginning of the locators of a further source's items."""


def split_sources(config: SourceConfig) -> list[SourceConfig]:
    """Return the settings of each source, in order."""
    configs = [config.model_copy(update={"further": ()})]
    for text in config.further:
        kind, _, path = text.partition(":")
        configs.append(config.model_copy(update={"kind": kind, "path": path, "further": ()}))
    return configs


def readers_of(config: SourceConfig) -> list[Reader]:
    """Return the reader of each source; none if the profile names no source yet."""
    kinds = [source.kind for source in split_sources(config)]
    return [READERS[kind] for kind in kinds if kind in READERS]


def list_all(
    config: SourceConfig, limit: int | None = None, *, rescans: int = 0
) -> Iterator[ItemRow]:
    """Yield the items of each source in its own order, at most ``limit`` of each.

    With another number of ``rescans``, all are other items, which are read again.
    Of a source with a weight below 1 a part is drawn, which grows and shrinks with the weight.
    """
    for index, source in enumerate(split_sources(config)):
        weight = config.weights.get(source.kind, 1.0)
        items = READERS[source.kind].list_items(source, limit if weight == 1 else None)
        if weight < 1:
            drawn = (item for item in items if _draw(item) < weight)
            items = islice(drawn, limit)
        for item in items:
            if index:
                item = _mark(item, index)
            if rescans:
                key = make_key("rescan", rescans, item.key)
                item = replace(item, key=key, source_key=key, subject=key)
            yield item


def _draw(item: ItemRow) -> float:
    """Return a number from 0 to 1 that depends on an item's key alone."""
    return int(make_key("weight", item.key), 16) / 16**32


def _mark(item: ItemRow, index: int) -> ItemRow:
    """Return an item with the number of its source in its locator."""
    return replace(item, locator=MARK.format(index=index) + item.locator)


def items_by_source(
    items: Sequence[ItemRow], config: SourceConfig
) -> Iterator[tuple[SourceConfig, list[ItemRow]]]:
    """Yield neighbouring items of one source, as its reader listed them, with its settings."""
    first, *further = split_sources(config)
    marks = {MARK.format(index=index): source for index, source in enumerate(further, 1)}

    def find_mark(item: ItemRow) -> str:
        return next((mark for mark in marks if item.locator.startswith(mark)), "")

    for mark, group in groupby(items, key=find_mark):
        source_items: list[ItemRow] = []
        for item in group:
            locator = item.locator.removeprefix(mark)
            source_items.append(replace(item, locator=locator))
        yield marks.get(mark, first), source_items


def brings(config: SourceConfig, *, row_type: type[Row]) -> bool:
    """Return whether a source brings rows of a type."""
    return any(row_type in reader.brings for reader in readers_of(config))


def are_mined(config: SourceConfig) -> bool:
    """Return whether pairs of a source's images are looked for: it brings none itself.

    Without a source yet, they are.
    """
    paired = {PairRow, PreferenceRow}
    readers = readers_of(config)
    return not readers or any(paired.isdisjoint(reader.brings) for reader in readers)


def rows_per_shard(config: SourceConfig) -> int:
    """Return the items of a shard: the fewest that a source asks for."""
    return min(reader.rows_per_shard for reader in readers_of(config))


def have_texts(config: SourceConfig) -> bool:
    """Return whether a source has people's texts about differences."""
    for source in split_sources(config):
        reader = READERS.get(source.kind)
        if reader and reader.has_texts(source.path):
            return True
    return False


def have_graphs(config: SourceConfig) -> bool:
    """Return whether the images of a source have scene graphs."""
    return any(reader.has_graphs for reader in readers_of(config))
