"""What a stage is: one pure function of rows, and which tables it reads, uses and writes.

A stage file ends with its ``STAGE``; fingerprints, what is owed, shards, look-ups and counts all follow from it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pairwright.schemas.plugins import LoadedFiles
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.schemas.section import Section

Results = Iterator[Row | Dropped | Failed]
Group = Literal["sources", "mining", "captioning", "rejected", "preferences", "training"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Hand another table to the stage's function, as the keyword argument ``name``."""

    table: str
    row: type[Row]
    """What it holds."""
    kind: Literal["one", "many", "all", "table", "vectors"] = "one"
    """``one``: mapping from subject to row. ``many``: to a tuple of rows. ``all``: every row, as a list. ``table``:
    every row, as an Arrow table (tens of bytes per row where ``all`` takes a thousand). ``vectors``: mapping from
    embedder to ``Vectors``."""
    on: str = "subject"
    """Which rows a shard needs: those about what this column names ("subject", "key", "element"; an empty name: none),
    for "images" about the two images of a pair, for "shown" about these or the one that a preference is about."""
    of: str = ""
    """The argument (named before) whose rows give the subject or the images; empty: the stage's own input rows."""
    without: tuple[str, ...] = ()
    """Columns that the function does not look at, and that are not read (image bytes, above all)."""
    counts: bool = False
    """Whether a row is owed again when one of these changes. Off where the input's key says everything already."""
    most: str = ""
    """Field of the stage's configuration that says how many rows ``all`` gives at the most."""
    only_in: str = ""
    """A table: only rows about what one of its rows is about are handed over (``vectors``)."""
    name: str = ""
    """The argument's name; empty: the table's."""

    @property
    def argument(self) -> str:
        """Return the name of the keyword argument."""
        return self.name or self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Declare one stage; its table has its name."""

    name: str
    version: int = 1
    """Raise it when the function's results change for the same configuration."""
    group: Group
    reads: Mapping[str, type[Row]]
    """The tables that give its input rows ("items": the source's listing); of one key, the first table's row counts.
    Without any the stage is off: its table is empty."""
    writes: type[Row]
    function: Callable[..., Results]
    """``function(rows, config, **uses)``; every result carries the ``key`` of its input row as ``source_key``."""
    config: str | type[Section]
    """The section of the profile that it receives; of a plugin's stage, the model of its settings."""
    uses: tuple[Uses, ...] = ()
    prompts: tuple[str, ...] = ()
    """Prompt files whose words end up in the rows."""
    models: Callable[[Any], tuple[str, ...]] | None = None
    """Names the models of a configuration, with their revisions."""
    enabled: Callable[[Any], bool] | None = None
    """Whether a configuration has the stage switched on; ``None``: every one has."""
    fit: "Callable[[Stage, Any], Stage] | None" = None
    """``fit(stage, config)`` returns the stage as a configuration runs it: which columns are read, what is used."""
    pin: Callable[[Any], Any] | None = None
    """Returns the configuration with its models at this machine's revisions; ``ModelError`` where one is missing."""
    processes: Callable[[Any], int | None] | None = None
    """How many processes of its own the stage may have, which end with it and free what its models hold: one per
    device; 0: as many as there are workers. ``None``: it runs in the build's workers."""
    only_in: tuple[str, ...] = ()
    """Tables of pairs or of preferences: only images that one of their rows is about are read."""
    whole: bool = False
    """Whether each row depends on the whole input: any change of it then owes every row again."""
    by_source: bool = False
    """Whether a row is owed again when its input has the same key, but another source: that key does not hash all."""
    tie: Literal["source_key", "anchor"] = "source_key"
    """Which of several ok rows with one key counts: the smallest of this column."""
    without: tuple[str, ...] = ()
    """Columns of the input that the function does not look at."""
    journal: bool = False
    """Whether a shard's results are kept as they come; the function then gives all of one input before the next's."""
    remembers: bool = False
    """Whether the function gets ``answers`` (``Answers``): what served models have answered to this shard already."""
    rows_per_shard: int = 0
    """Input rows of a shard where the profile names none for this stage; 0: the profile's general number."""

    @property
    def section(self) -> str:
        """Return the section of the profile that it receives."""
        return self.config if isinstance(self.config, str) else f"stages.{self.name}"

    @property
    def is_on(self) -> bool:
        """Say whether it has anything to read; a stage that is off leaves an empty table."""
        return bool(self.reads)

    @property
    def tables(self) -> set[str]:
        """Return the tables that it is made of."""
        used = {use.table for use in self.uses}
        return {*self.reads, *self.only_in, *used, *(use.only_in for use in self.uses if use.only_in)}


def fingerprint(stage: Stage, config: Section, *, prompts: Mapping[str, str], tables: Mapping[str, str]) -> str:
    """Return the hash of everything that decides a stage's rows, apart from the input rows themselves.

    ``prompts`` has the SHA-256 of each prompt file, ``tables`` the fingerprint of each table made so far.
    """
    parts = [stage.name, str(stage.version), config.model_dump_json(exclude=_uncounted(config))]
    parts += [f"prompt {name} {prompts[name]}" for name in sorted(stage.prompts)]
    parts += [f"table {name} {tables[name]}" for name in sorted(stage.tables - {"items"})]
    return make_key(*parts, *(stage.models(config) if stage.models else ()))[:16]


def _uncounted(config: Section) -> dict[str, Any]:
    """Return the fields that do not count, of a section and of those inside it, in pydantic's form."""
    inner = {name: _uncounted(value) for name, value in config if isinstance(value, Section)}
    return {name: fields for name, fields in inner.items() if fields} | dict.fromkeys(config.uncounted, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Stage with its configuration and fingerprint: ready to run on a dataset."""

    stage: Stage
    config: Any
    fingerprint: str

    @property
    def table(self) -> str:
        """Return the folder of its table, below the dataset's."""
        return table_folder(self.stage.name, self.fingerprint)

    def __reduce__(self) -> tuple[Callable[..., "Planned"], tuple[Any, ...]]:
        """Let a worker load the plugin files before it meets what is of them."""
        return _unpickled, (LoadedFiles(), self.stage, self.config, self.fingerprint)


def _unpickled(_: None, stage: Stage, config: Any, mark: str) -> Planned:
    return Planned(stage=stage, config=config, fingerprint=mark)


def table_folder(name: str, mark: str) -> str:
    """Return where a table's parts are, below the dataset's folder."""
    return f"tables/{name}/{mark}"


def table_of(path: str) -> str:
    """Return the name of the table that a part belongs to, from its path below the dataset's folder."""
    return path.split("/")[1]
