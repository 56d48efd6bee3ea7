"""Read what the items of a source hold: images, and the pairs, comparisons and preferences that it brings beside them.

Writes ``ImageRow`` and, to a table for each type of row that a source may bring, the rows of that type. An item is read
once for its images and once for each of these tables, which is far cheaper than what is asked of models about it.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import ComparisonRow, Dropped, Failed, ImageRow, ItemRow, PairRow, PreferenceRow, Row
from pairwright.tasks.sources.perturb_source import perturb_source
from pairwright.tasks.sources.reader import Read
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Stage


def read_items(rows: Sequence[ItemRow], config: SourceConfig, *, wanted: type[Row] = ImageRow) -> Iterator[Read]:
    """Yield the rows of one type that the items hold, or why there is none."""
    for found in perturb_source(READERS[config.kind].read_items(rows, config), config.robustness):
        if isinstance(found, wanted | Dropped | Failed):
            yield found


def brings(config: SourceConfig, *, wanted: type[Row]) -> bool:
    """Say whether the source brings rows of a type."""
    reader = READERS.get(config.kind)  # a profile may name no source yet
    return reader is not None and wanted in reader.brings


IMAGES = Stage(
    name="images",
    version=1,
    group="sources",
    reads={"items": ItemRow},
    writes=ImageRow,
    function=read_items,
    config="sources",
    journal=True,
)


def _given(name: str, writes: type[Row]) -> Stage:
    return Stage(
        name=name,
        version=1,
        group="sources",
        reads={"items": ItemRow},
        writes=writes,
        function=partial(read_items, wanted=writes),
        config="sources",
        enabled=partial(brings, wanted=writes),
    )


PAIRS = _given("given_pairs", PairRow)
COMPARISONS = _given("given_comparisons", ComparisonRow)
PREFERENCES = _given("given_preferences", PreferenceRow)
