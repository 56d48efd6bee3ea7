"""Read the images of the items that a source listed: files of a folder, rendered worlds, rows of a table.

Reads ``ItemRow``, writes ``ImageRow``. What cannot be read is dropped with its reason; nothing stops a build.
"""

from collections.abc import Iterator, Sequence

from pairwright.schemas.config import SourceConfig
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow
from pairwright.tasks.sources.perturb_source import perturb_source
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Stage


def read_images(rows: Sequence[ItemRow], config: SourceConfig) -> Iterator[ImageRow | Dropped | Failed]:
    """Yield the images of each item, or why there is none."""
    for found in perturb_source(READERS[config.kind].read_items(rows, config), config.robustness):
        if isinstance(found, ImageRow | Dropped | Failed):
            yield found


STAGE = Stage(
    name="images",
    version=1,
    group="sources",
    reads={"items": ItemRow},
    writes=ImageRow,
    function=read_images,
    config="sources",
    journal=True,
)
