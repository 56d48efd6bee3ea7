"""Read a dataset's tables from Python, by the rule that every stage reads by: each row once, none that is stale.

The Parquet parts of a folder may hold rows that no longer count (their image was removed, a pair was found from both
its ends), so reading the files by hand gives too many.

    from pairwright.flows.read_rows import read_rows

    for pair in read_rows("album", "pairs"):
        print(pair.first, pair.second, pair.similarity)
"""

from collections.abc import Iterator, Sequence

from pairwright.flows.open_version import opened
from pairwright.flows.pipeline import find_table
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import Row
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import read_live


def read_rows(dataset: str, table: str, *, without: Sequence[str] = (), version: int | None = None) -> Iterator[Row]:
    """Yield the rows of a table in the order of what they are about.

    Args:
        dataset: folder or URL of the dataset.
        table: "pairs", "images", ... (``schemas.rows`` says what each row holds).
        without: columns that are not read, such as "image", which is then empty.
        version: which version's rows; ``None``: the newest (what a build does meanwhile changes nothing), or the tables
            as they are now where there is none yet.

    Raises:
        ConfigError: there is no such dataset or version, or it has no such table.
        StoreError: a part cannot be read, or is gone.
    """
    find_table(table)
    with opened(Folder(dataset), version) as (build, stages):
        planned = next((planned for planned, _ in stages if planned.stage.name == table), None)
        if planned is None:
            there = ", ".join(planned.stage.name for planned, _ in stages)
            raise ConfigError(f"{dataset}: was built without the table {table}. It has {there}")
        yield from read_live(build, planned, planned.stage.writes, without=without)
