"""Stages: a pure function of rows, and the tables that it reads, uses and writes.

A stage file ends with its ``STAGE``; fingerprints, owed rows, shards, look-ups and counts all
follow from it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from pairwright.schemas.config import Profile, section_name
from pairwright.schemas.plugins import LoadedFiles
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.schemas.section import Section

Results = Iterator[Row | Dropped | Failed]
Group = Literal["sources", "mining", "captioning", "rejected", "preferences", "training"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Another table that the stage's function gets as the keyword argument ``name``."""

    table: str
    row: type[Row]
    """Type of its rows."""
    kind: Literal["one", "many", "table", "vectors"] = "one"
    """``one``: mapping from subject to row. ``many``: to a tuple of rows. ``table``: every row, as
    an Arrow table. ``vectors``: mapping from embedder to ``Vectors``."""
    on: str = "subject"
    """Column of the input that holds the subjects of the rows that a shard needs ("subject", "key",
    "element"; empty: none); "images": the two images of a pair; "shown": these, or the one image
    that a preference is about; "nearest": an anchor and its first neighbours."""
    of: str = ""
    """Earlier argument that provides this column instead; empty: the stage's own input rows."""
    without: tuple[str, ...] = ()
    """Columns that the function does not use and that are not read, such as image bytes."""
    counts: bool = False
    """Whether a row is owed again when one of these changes; off if the input's key covers it
    already."""
    only_in: str = ""
    """Table that restricts the rows: only those with a subject of its rows are passed
    (``vectors``)."""
    name: str = ""
    """Name of the argument; empty: the table's."""

    @property
    def argument(self) -> str:
        """Return the name of the keyword argument."""
        return self.name or self.table


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Declaration of one stage; its table has its name."""

    name: str
    version: int = 1
    """Number to raise when the function's results change for the same configuration."""
    group: Group
    reads: Mapping[str, type[Row]]
    """Tables of its input rows ("items": the source's listing); for a key in several, the first
    table's row counts. Without any, the stage is off and its table empty."""
    writes: type[Row]
    function: Callable[..., Results]
    """``function(rows, config, **uses)``; every result carries the ``key`` of its input row as
    ``source_key``."""
    config: Callable[[Profile], Section] | type[Section] = field(compare=False)
    """Function that returns its configuration from a profile; for a plugin's stage, and one planned
    beside a build, the model of its settings."""
    uses: tuple[Uses, ...] = ()
    prompts: tuple[str, ...] = ()
    """Prompt files that affect the rows."""
    models: Callable[[Any], tuple[str, ...]] | None = None
    """Function that returns the models of a configuration with their revisions."""
    enabled: Callable[[Any], bool] | None = None
    """Function that returns whether a configuration has the stage on; ``None``: always on."""
    fit: "Callable[[Stage, Any], Stage] | None" = None
    """``fit(stage, config)`` returns the stage for a configuration, with the columns and tables
    that it needs."""
    pin: Callable[[Any], Any] | None = None
    """Function that pins a configuration's models to this machine's revisions; ``ModelError`` if
    one is missing."""
    processes: Callable[[Any], int | None] | None = None
    """Function that returns the number of the stage's own processes, which end with it and free its
    models' memory: one per device; 0: as many as workers. ``None``: it runs in the build's
    workers."""
    only_in: tuple[str, ...] = ()
    """Tables of pairs or of preferences: only images of their rows are read."""
    whole: bool = False
    """Whether each row depends on the whole input, so that any change of it makes every row owed
    again."""
    by_source: bool = False
    """Whether a row is owed again when the source key or the table of its input changes: for inputs
    whose key does not hash everything."""
    tie: Literal["source_key", "anchor"] = "source_key"
    """Column that decides between ok rows of one key: the smallest value counts."""
    without: tuple[str, ...] = ()
    """Columns of the input that the function does not use."""
    journal: bool = False
    """Whether a shard's results are journalled; the function must then yield all of one input
    before the next."""
    remembers: bool = False
    """Whether the function gets ``answers`` (``Answers``): earlier answers of served models to this
    shard."""
    rows_per_shard: int = 0
    """Input rows of a shard, unless the profile sets them for this stage; 0: the profile's general
    number."""

    def configure(self, profile: Profile) -> Any:
        """Return its configuration: the settings of a profile, with what a build found."""
        resolved = profile.settled
        if isinstance(self.config, type):
            return resolved.complete(resolved.stages[self.name])
        return self.config(resolved)

    def section_of(self, config: Section) -> str:
        """Return the dotted name of its settings in a profile; empty: they are in several sections."""
        if isinstance(self.config, type):
            return f"stages.{self.name}"
        return section_name(type(config))

    def __reduce__(self) -> tuple[Callable[..., "Stage"], tuple[dict[str, Any]]]:
        """Pickle without the function of the profile: workers get the configuration itself."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return _unpickle_stage, ({**values, "config": Section},)

    @property
    def is_on(self) -> bool:
        """Return whether it reads any table; a stage that is off leaves an empty table."""
        return bool(self.reads)

    @property
    def tables(self) -> set[str]:
        """Return the tables that its table is made from."""
        used = {use.table for use in self.uses}
        return {
            *self.reads,
            *self.only_in,
            *used,
            *(use.only_in for use in self.uses if use.only_in),
        }


def _unpickle_stage(values: dict[str, Any]) -> Stage:
    return Stage(**values)


def fingerprint(
    stage: Stage, config: Section, *, prompts: Mapping[str, str], tables: Mapping[str, str]
) -> str:
    """Return the hash of everything that determines a stage's rows, except the input rows themselves.

    ``prompts`` has the SHA-256 of each prompt file, ``tables`` the fingerprint of each table made
    so far.
    """
    parts = [stage.name, str(stage.version), config.model_dump_json(exclude=_uncounted(config))]
    parts += [f"prompt {name} {prompts[name]}" for name in sorted(stage.prompts)]
    parts += [f"table {name} {tables[name]}" for name in sorted(stage.tables - {"items"})]
    return make_key(*parts, *(stage.models(config) if stage.models else ()))[:16]


def _uncounted(config: Section) -> dict[str, Any]:
    """Return the uncounted fields of a section and of sections inside it, in pydantic's form."""
    inner = {name: _uncounted(value) for name, value in config if isinstance(value, Section)}
    return {name: fields for name, fields in inner.items() if fields} | dict.fromkeys(
        config.uncounted, True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Stage with its configuration and fingerprint: ready to run on a dataset."""

    stage: Stage
    config: Any
    fingerprint: str

    @property
    def section(self) -> str:
        """Return the dotted name of its settings in a profile; empty: they are in several sections."""
        return self.stage.section_of(self.config)

    @property
    def table(self) -> str:
        """Return the folder of its table, below the dataset's."""
        return table_folder(self.stage.name, self.fingerprint)

    def __reduce__(self) -> tuple[Callable[..., "Planned"], tuple[Any, ...]]:
        """Pickle so that a worker loads the plugin files before it needs them."""
        return _unpickled, (LoadedFiles(), self.stage, self.config, self.fingerprint)


def _unpickled(_: None, stage: Stage, config: Any, mark: str) -> Planned:
    return Planned(stage=stage, config=config, fingerprint=mark)


def table_folder(name: str, mark: str) -> str:
    """Return the folder of a table's parts, below the dataset's folder."""
    return f"tables/{name}/{mark}"


def table_of(path: str) -> str:
    """Return the name of the table that a part belongs to, from its path below the dataset's folder."""
    return path.split("/")[1]
