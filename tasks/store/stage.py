"""Stages: a pure function of rows, and the tables that it reads, uses and writes.

A stage file ends with its ``STAGE``, the same for every profile. For a profile, ``configure`` gives
its configuration and ``inputs`` the tables that it then reads and uses; fingerprints, unfinished
rows, shards, look-ups and counts all follow from these.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal

from pairwright.prompts import load_prompt, use_prompts
from pairwright.schemas.config import Profile, section_name
from pairwright.schemas.plugins import LoadedFiles
from pairwright.schemas.rows import Dropped, Failed, Row, make_key
from pairwright.schemas.section import Section
from pairwright.schemas.writing import served_parts

Results = Iterator[Row | Dropped | Failed]
Group = Literal["sources", "mining", "captioning", "rejected", "preferences", "training"]
LISTING = "items"
"""Table of the source's listing, which no stage makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Another table that the stage's function gets as the keyword argument ``name``."""

    table: str
    row: type[Row]
    """Type of its rows."""
    kind: Literal["one", "many", "table", "vectors"] = "one"
    """``one``: mapping from subject to row. ``many``: to a tuple of rows. ``table``: every row, as
    an Arrow table; each row then depends on the whole input, so that any change of it makes every
    row unfinished again. ``vectors``: mapping from embedder to ``Vectors``."""
    on: Literal["subject", "about", "key"] = "subject"
    """Subjects of the rows that a shard needs: those of its input rows, the keys that these are
    about (``Row.about_keys``: the two images of a pair), or their keys."""
    by: Literal["subject", "source_key"] = "subject"
    """Column of the used rows in which these keys are looked up; ``source_key``: what was made from
    the input rows ("the images of an item")."""
    of: str = ""
    """Earlier argument whose rows are meant instead; empty: the stage's own input rows."""
    without: tuple[str, ...] = ()
    """Columns that the function does not use and that are not read, such as image bytes."""
    counts: bool = False
    """Whether a row is unfinished again when one of these changes; off if the input's key covers it
    already."""
    facts: bool = False
    """Whether a row is unfinished again when the source changes what is known of one of these
    (``Row.FACTS``)."""
    only_in: str = ""
    """Table that restricts the rows: only those with a subject of its rows are passed
    (``vectors``); as with ``table``, each row then depends on the whole input."""
    name: str = ""
    """Name of the argument; empty: the table's."""
    when: Callable[[Any], bool] | None = field(default=None, compare=False)
    """Function that returns whether a configuration needs the table; ``None``: each does."""

    @property
    def argument(self) -> str:
        """Return the name of the keyword argument."""
        return self.name or self.table

    @property
    def input_tables(self) -> set[str]:
        """Return the tables that it reads."""
        return {self.table, self.only_in} - {""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Tables and prompts that a stage gets for one configuration."""

    reads: Mapping[str, type[Row]]
    """Tables of its input rows. Without any, the stage is off and its table empty."""
    only_in: tuple[str, ...] = ()
    uses: tuple[Uses, ...] = ()
    prompts: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def input_tables(self) -> set[str]:
        """Return the tables that the stage's table is made from."""
        return set(self.reads).union(self.only_in, *(use.input_tables for use in self.uses))

    @property
    def is_whole(self) -> bool:
        """Return whether each row depends on the whole input."""
        return any(use.kind == "table" or use.only_in for use in self.uses)


NO_INPUTS = Inputs(reads={})
"""Inputs of a stage that is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Declaration of one stage, the same for every profile; its table has its name."""

    name: str
    version: int = 1
    """Number to raise when the function's results change for the same configuration."""
    group: Group
    reads: Mapping[str, type[Row]]
    """Tables of its input rows ("items": the source's listing); for a key in several, the first
    table's row counts."""
    writes: type[Row]
    function: Callable[..., Results]
    """``function(rows, config, **uses)``; every result carries the ``key`` of its input row as
    ``source_key``."""
    config: Callable[[Profile], Section] | type[Section] = field(compare=False)
    """Function that returns its configuration from a profile; for a plugin's stage, and one planned
    beside a build, the model of its settings."""
    uses: tuple[Uses, ...] = ()
    prompts: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    """Prompt files that affect the rows, or a function that returns a configuration's."""
    models: Callable[[Any], tuple[str, ...]] | None = None
    """Function that returns the models of a configuration with their revisions."""
    enabled: Callable[[Any], bool] | None = None
    """Function that returns whether a configuration has the stage on; ``None``: always on."""
    pin: Callable[[Any], Any] | None = None
    """Function that pins a configuration's models to this machine's revisions; ``ModelError`` if
    one is missing."""
    processes: Callable[[Any], int | None] | None = None
    """Function that returns the number of the stage's own processes, which end with it and free its
    models' memory: one per device; 0: as many as workers. ``None``: it runs in the build's
    workers."""
    only_in: tuple[str, ...] = ()
    """Tables of pairs or of preferences: only images of their rows are read."""
    extends: str = ""
    """Earlier table of the same rows, in which later stages look up this stage's rows as well; one
    that reads them as its input names both tables."""
    by_source: bool = False
    """Whether a row is unfinished again when the source key or the table of its input changes: for
    inputs whose key does not hash everything."""
    facts: Callable[[Any], bool] | None = None
    """Function that returns whether a row of a configuration is unfinished again when the source
    changes what is known of its input (``Row.FACTS``); ``None``: it never is."""
    without: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    """Columns of the input that the function does not use, or a function that returns a
    configuration's."""
    journal: Literal["none", "results", "answers"] = "none"
    """Journal of an unfinished shard: the function's results, of which it must then yield all of
    one input before the next; or the answers of served models, for which the function gets
    ``answers`` (``Answers``) if its configuration asks one."""
    rows_per_shard: int | Callable[[Any], int] = 0
    """Input rows of a shard, or a function that returns a configuration's, unless the profile sets
    them for this stage; 0: the profile's general number."""

    @property
    def input_tables(self) -> set[str]:
        """Return the tables that its table is made from, whatever the configuration."""
        return set(self.reads).union(self.only_in, *(use.input_tables for use in self.uses))

    def configure(self, profile: Profile) -> Any:
        """Return its configuration: the settings of a profile, with what a build found."""
        resolved = profile.resolved
        if isinstance(self.config, type):
            return resolved.complete(resolved.stages[self.name])
        return self.config(resolved)

    def section_of(self, config: Section) -> str:
        """Return the dotted name of its settings in a profile; empty.

        They are in several sections.
        """
        if isinstance(self.config, type):
            return f"stages.{self.name}"
        return section_name(type(config))

    def inputs(self, config: Any, tables: Collection[str] | None = None) -> Inputs:
        """Return its inputs for a configuration, from the tables that a build has (``None``.

        All).
        """
        available = self.input_tables if tables is None else {*tables, LISTING}
        reads = {table: row for table, row in self.reads.items() if table in available}
        only_in = tuple(table for table in self.only_in if table in available)
        if not reads or (self.only_in and not only_in):
            return NO_INPUTS
        uses: list[Uses] = []
        for use in self.uses:
            is_needed = use.when is None or use.when(config)
            has_origin = not use.of or use.of in {earlier.argument for earlier in uses}
            if is_needed and has_origin and use.table in available:
                uses.append(use)
        return Inputs(
            reads=reads,
            only_in=only_in,
            uses=tuple(uses),
            prompts=self.prompts(config) if callable(self.prompts) else self.prompts,
            without=self.without(config) if callable(self.without) else self.without,
        )

    def shard_size(self, config: Any) -> int:
        """Return the input rows of a shard for a configuration; 0: the profile's general number."""
        size = self.rows_per_shard
        return size(config) if callable(size) else size

    def __reduce__(self) -> tuple[Callable[..., "Stage"], tuple[dict[str, Any]]]:
        """Pickle without the function of the profile: workers get the configuration itself."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        return _unpickle_stage, ({**values, "config": Section},)


def _unpickle_stage(values: dict[str, Any]) -> Stage:
    return Stage(**values)


def fingerprint(
    stage: Stage,
    config: Section,
    *,
    inputs: Inputs,
    prompts: Mapping[str, str],
    tables: Mapping[str, str],
) -> str:
    """Return the hash of everything that determines a stage's rows, except its input rows.

    ``prompts`` has the SHA-256 of each prompt file, ``tables`` the fingerprint of each table made
    so far.
    """
    parts = settings_parts(stage, config, inputs, prompts)
    parts += [f"table {name} {tables[name]}" for name in sorted(inputs.input_tables - {LISTING})]
    if stage.models:
        parts += stage.models(config)
    return make_key(*parts)[:16]


def settings_parts(
    stage: Stage, config: Section, inputs: Inputs, prompts: Mapping[str, str]
) -> list[str]:
    """Return what determines a stage's rows, except its tables and models.

    ``prompts`` has the SHA-256 of each prompt file.
    """
    settings = config.model_dump_json(exclude=_uncounted(config))
    files = [f"prompt {name} {prompts[name]}" for name in sorted(inputs.prompts)]
    return [stage.name, str(stage.version), settings, *files]


def hash_prompts(inputs: Inputs, replaced: Mapping[str, str]) -> dict[str, str]:
    """Return the SHA-256 of each prompt file of a stage; ``replaced`` has texts in place of ours.

    A replaced text that is ours to the letter changes nothing.
    """
    with use_prompts(replaced):
        return {name: load_prompt(name).sha256 for name in inputs.prompts}


def _uncounted(config: Section) -> dict[str, Any]:
    """Return the uncounted fields of a section and of sections inside it, in pydantic's form."""
    excluded: dict[str, Any] = {}
    for name, value in config:
        if isinstance(value, Section):
            excluded[name] = _uncounted(value)
    excluded = {name: inner for name, inner in excluded.items() if inner}
    return excluded | dict.fromkeys(config.uncounted, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Stage with its configuration, inputs and fingerprint: ready to run on a dataset."""

    stage: Stage
    config: Any
    inputs: Inputs
    fingerprint: str
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts in place of our prompts, by name: of those that it declares, no others."""

    @property
    def is_on(self) -> bool:
        """Return whether it reads any table; a stage that is off leaves an empty table."""
        return bool(self.inputs.reads)

    @property
    def reads_source(self) -> bool:
        """Return whether it reads the source's listing."""
        return LISTING in self.inputs.reads

    @property
    def keeps_results(self) -> bool:
        """Return whether the results of an unfinished shard are journalled."""
        return self.stage.journal == "results"

    @property
    def keeps_answers(self) -> bool:
        """Return whether the answers of served models to an unfinished shard are journalled."""
        return self.stage.journal == "answers" and any(served_parts(self.config))

    @property
    def section(self) -> str:
        """Return the dotted name of its settings in a profile; empty.

        They are in several sections.
        """
        return self.stage.section_of(self.config)

    @property
    def table_path(self) -> str:
        """Return the folder of its table, below the dataset's."""
        return table_folder(self.stage.name, self.fingerprint)

    def __reduce__(self) -> tuple[Callable[..., "Planned"], tuple[Any, ...]]:
        """Pickle so that a worker loads the plugin files before it needs them."""
        return _unpickle_planned, (
            LoadedFiles(),
            self.stage,
            self.config,
            self.inputs,
            self.fingerprint,
            self.prompts,
        )


def _unpickle_planned(
    _: None,
    stage: Stage,
    config: Any,
    inputs: Inputs,
    fingerprint: str,
    prompts: Mapping[str, str],
) -> Planned:
    return Planned(
        stage=stage, config=config, inputs=inputs, fingerprint=fingerprint, prompts=prompts
    )


def plan_stage(
    stage: Stage,
    config: Section,
    *,
    inputs: Inputs,
    tables: Mapping[str, str],
    prompts: Mapping[str, str] = MappingProxyType({}),
) -> Planned:
    """Return a stage ready to run; ``tables`` has the fingerprints of the tables made so far.

    ``prompts`` has a user's texts in place of ours, by name.
    """
    replaced = {name: prompts[name] for name in inputs.prompts if name in prompts}
    if inputs.reads:
        hashes = hash_prompts(inputs, replaced)
        replaced = _pin_prompts(inputs, replaced)
        mark = fingerprint(stage, config, inputs=inputs, prompts=hashes, tables=tables)
    else:
        mark = make_key(stage.name, "off")[:16]
    return Planned(stage=stage, config=config, inputs=inputs, fingerprint=mark, prompts=replaced)


def _pin_prompts(inputs: Inputs, replaced: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each prompt of a stage, so that workers use what was fingerprinted."""
    with use_prompts(replaced):
        return {name: load_prompt(name).text for name in inputs.prompts}


def table_folder(name: str, fingerprint: str) -> str:
    """Return the folder of a table's parts, below the dataset's folder."""
    return f"tables/{name}/{fingerprint}"


def table_of(path: str) -> str:
    """Return the table that a part belongs to, from its path below the dataset's folder."""
    return path.split("/")[1]
