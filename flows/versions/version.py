"""Open a version of a dataset, or its current tables; publish these as a version if its gates hold.

A running build changes no version: a version is planned from its own record, and only the parts
that it names are read. All readers of a dataset go through here: ``flows.dataset`` and the modules
that it calls.
"""

import tempfile
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import BY_NAME, RESULTS
from pairwright.schemas.config import BuildRecord, Profile, add_findings
from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError
from pairwright.schemas.plugins import Registry
from pairwright.schemas.rows import ImageRow
from pairwright.schemas.section import Section
from pairwright.schemas.suggest import suggest
from pairwright.tasks.captioning.validators import VALIDATORS
from pairwright.tasks.models.embedders import EMBEDDERS
from pairwright.tasks.models.nouns import NOUN_FINDERS
from pairwright.tasks.models.text_scorer import SCORERS
from pairwright.tasks.perception.detectors import DETECTORS
from pairwright.tasks.perception.removers import REMOVERS
from pairwright.tasks.perception.segmenters import SEGMENTERS
from pairwright.tasks.perception.taggers import TAGGERS
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.sources.sources import rows_per_shard
from pairwright.tasks.store import gates
from pairwright.tasks.store import snapshot as snapshots
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.index import Index, open_index_file, write_index
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build, Snapshot, read_record
from pairwright.tasks.store.stage import Planned, Stage, plan_stage
from pairwright.tasks.store.takedowns import last_takedown, read_takedowns, removed_by

MODEL_REGISTRIES: tuple[Registry[Any], ...] = (
    EMBEDDERS.plugins,
    TAGGERS.plugins,
    DETECTORS.plugins,
    SEGMENTERS.plugins,
    REMOVERS.plugins,
    SCORERS.plugins,
    NOUN_FINDERS.plugins,
)
REGISTRIES: Mapping[str, Registry[Any]] = {
    registry.group: registry for registry in (READERS, VALIDATORS, BY_NAME, *MODEL_REGISTRIES)
}
Resolved = tuple[Build, list[tuple[Planned, Counts]]]
"""An open build, and its stages with their counts."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """Version of a dataset: folder, pipeline, and the snapshot that names its parts.

    with open_version(Folder("album"), 3).resolved() as (build, stages):
        print({planned.stage.name: counts.rows for planned, counts in stages})
    """

    folder: Folder
    pipeline: Pipeline
    snapshot: Snapshot | None = None  # ``None``: the current tables
    items: Sequence[str] = ()  # the parts that list the source, in its order
    limit: int | None = None  # first N images of the source; ``None``: all
    rescans: int = 0  # how often all bytes of the source were read again
    _indexes: dict[tuple[str, bool, int], Index] = field(
        default_factory=dict[tuple[str, bool, int], Index], init=False, compare=False, repr=False
    )

    @classmethod
    def from_record(
        cls, folder: Folder, record: BuildRecord, snapshot: Snapshot | None = None
    ) -> Self:
        """Return the version that a record describes."""
        return cls(
            folder=folder,
            pipeline=Pipeline(record.profile, record.until),
            snapshot=snapshot,
            items=record.items,
            limit=record.limit,
            rescans=record.rescans,
        )

    @property
    def record(self) -> BuildRecord:
        """Return the record that ``resume`` and ``status`` need, with the origins of plugins."""
        origins: dict[str, str] = {}
        for path in self.profile.named:
            group, name = path.split(".", 1)
            origin = REGISTRIES[group].origin(name)
            if origin:
                origins[path] = origin
        return BuildRecord(
            plugins=origins,
            items=tuple(self.items),
            profile=add_findings(self.profile, {}),
            limit=self.limit,
            rescans=self.rescans,
            until=self.pipeline.until,
        )

    @property
    def number(self) -> int:
        """Return the version's number; 0: the current tables."""
        return self.snapshot.number if self.snapshot else 0

    @property
    def profile(self) -> Profile:
        """Return the profile that it was built with."""
        return self.pipeline.profile

    @cached_property
    def stages(self) -> list[Planned]:
        """Return all of its stages; those that are off have empty tables."""
        stages = self.pipeline.plan()
        if self.snapshot is None:
            return stages
        stated = self.snapshot.content["stages"]
        return [
            replace(planned, fingerprint=stated[planned.stage.name]["fingerprint"])
            for planned in stages
        ]

    @property
    def planned(self) -> list[Planned]:
        """Return the stages that are on."""
        return [planned for planned in self.stages if planned.is_on]

    def find_stage(self, table: str) -> Planned:
        """Return the stage that writes a table."""
        for planned in self.stages:
            if planned.stage.name == table:
                return planned
        tables = [planned.stage.name for planned in self.planned]
        hint = suggest(table, tables)
        raise ConfigError(f"{self.folder.url}: has no table {table}; {hint}")

    def opened(
        self,
        extra: Sequence[Planned] = (),
        *,
        with_off: bool = False,
        without: Collection[str] = (),
    ) -> Build:
        """Return the build of its tables and of extra ones, not entered or resolved yet.

        ``without``: parts of the current tables that are not read.
        """
        run = self.profile.run
        planned = self.stages if with_off else self.planned
        sizes: dict[str, int] = {}
        for reading in self.planned:
            if reading.reads_source:
                sizes[reading.stage.name] = rows_per_shard(self.profile.source_config)
        return Build(
            self.folder,
            [*planned, *extra],
            self.items,
            run.rows_per_shard,
            {**sizes, **run.rows_per_shard_of},
            self.snapshot,
            without,
        )

    @contextmanager
    def resolved(
        self,
        extra: Sequence[Planned] = (),
        *,
        with_off: bool = False,
        without: Collection[str] = (),
    ) -> Generator[Resolved]:
        """Open its tables and extra ones, with every stage counted, without running anything."""
        with self.opened(extra, with_off=with_off, without=without) as build:
            stages = self.resolve(build, self.stages if with_off else self.planned)
            for planned in extra:
                stages.append((planned, build.resolve(planned)))
            yield build, stages

    def resolve(self, build: Build, planned: Iterable[Planned]) -> list[tuple[Planned, Counts]]:
        """Resolve some of its stages, after the earlier ones.

        Return them with the version's counts.
        """
        resolved: list[tuple[Planned, Counts]] = []
        for stage in planned:
            name = stage.stage.name
            counts = build.resolve(stage)
            if self.snapshot and self.snapshot.takedowns == build.takedowns:
                stated = self.snapshot.content["stages"][name]
                if dict(build.ledger.live_parts(name)) != stated["parts"]:
                    stated_rows = sum(stated["parts"].values())
                    raise StoreError(
                        f"{self.folder.url}: version {self.number} states {stated_rows:,} rows of "
                        f"{name}, but its parts hold {counts.rows:,}: another release made it, or "
                        "a part has changed. Open another version (`pairwright versions`), or "
                        "build again"
                    )
                counts = _read_counts(stated)
            resolved.append((stage, counts))
        return resolved

    def stage_counts(self) -> list[Counts]:
        """Return the counts of each stage, of the version or of the current tables.

        A version counts anew if images were removed after it was published.
        """
        if self.snapshot is None or self.snapshot.takedowns != last_takedown(self.folder):
            with self.resolved(with_off=True) as (_, stages):
                return [counts for _, counts in stages]
        return self._counts_in(self.snapshot)

    def stated_counts(self, newest: Snapshot) -> list[Counts] | None:
        """Return the counts of the newest version, if the current tables are exactly its parts.

        ``None`` if they are not, or if rows are unfinished, since it does not state their reasons.
        """
        content = newest.content
        if [*self.items] != content["items"] or newest.takedowns != last_takedown(self.folder):
            return None
        if all(self._is_stated(planned, content["stages"]) for planned in self.stages):
            return self._counts_in(newest)
        return None

    def _is_stated(self, planned: Planned, stated_stages: Mapping[str, Any]) -> bool:
        """Return whether a stage's table is complete, with the parts that a version states."""
        stated = stated_stages.get(planned.stage.name)
        if stated is None or stated["fingerprint"] != planned.fingerprint:
            return False
        if stated["counts"]["failed"] or stated["counts"]["pending"]:
            return False
        if not planned.is_on:
            return True
        files = set(self.folder.names(planned.table_path)) - {".lock"}
        return files == {*stated["parts"], *stated["refused"]}

    def _counts_in(self, snapshot: Snapshot) -> list[Counts]:
        stated = snapshot.content["stages"]
        return [_read_counts(stated[planned.stage.name]) for planned in self.stages]

    def index(self, table: str, *, extended: bool = False) -> Index:
        """Return the index of a table's live rows; ``extended``: of its extensions, too.

        Settles only the stages that lead to it, and writes nothing.
        """
        state = (table, extended, last_takedown(self.folder))
        if state in self._indexes:
            return self._indexes[state]
        last = self.find_stage(table)
        tables = [table]
        if extended:
            tables += [extra.stage.name for extra in self.planned if extra.stage.extends == table]
        needed = set(tables)
        leading: list[Planned] = []
        for planned in reversed(self.stages):
            if planned.stage.name in needed:
                leading.insert(0, planned)
                needed |= planned.inputs.input_tables
        with self.opened() as build, tempfile.TemporaryDirectory(prefix="pairwright-") as scratch:
            self.resolve(build, leading)
            file = Path(scratch, "index.arrow")
            # before the index, which streams from the ledger
            names: list[str] = []
            for name in tables:
                folder = self.find_stage(name).table_path
                names += [f"{folder}/{part}" for part in build.ledger.part_names(name)]
            write_index(file, build.ledger.index(tables), names)
            index = open_index_file(file, self.folder, last.table_path)
        self._indexes[state] = index
        return index

    def plan_extra(
        self, stage: Stage, config: Section, *, after: Sequence[Planned] = ()
    ) -> Planned:
        """Return an extra stage planned on the version's tables, without running it."""
        if stage.pin:
            config = stage.pin(config)
        tables = {planned.stage.name: planned.fingerprint for planned in (*self.planned, *after)}
        off = {planned.stage.name for planned in self.stages if planned.stage.extends}
        inputs = stage.inputs(config, stage.input_tables - (off - tables.keys()))
        missing = inputs.input_tables - tables.keys()
        if missing:
            names = ", ".join(sorted(missing))
            raise ConfigError(f"{stage.name}: needs {names}, which this dataset lacks")
        prompts = self.profile.resolved.prompt_texts
        return plan_stage(stage, config, inputs=inputs, tables=tables, prompts=prompts)


def open_version(folder: Folder, number: int | None = None) -> Version:
    """Return a version of a dataset after checking its files.

    Without a number, the newest, or the current tables.
    """
    if number is None:
        snapshot = snapshots.latest_snapshot(folder)
        return _open_snapshot(folder, snapshot) if snapshot else open_present(folder)
    numbers = snapshots.snapshot_numbers(folder)
    if number not in numbers:
        read_record(folder)  # raises if there is no dataset at all
        known = ", ".join(map(str, numbers)) or "none yet"
        raise ConfigError(f"{folder.url}: no version {number}; choose from {known}")
    return _open_snapshot(folder, snapshots.read_snapshot(folder, number))


def open_present(folder: Folder) -> Version:
    """Return the current tables of a dataset, as its last build planned them."""
    return Version.from_record(folder, read_record(folder))


def _open_snapshot(folder: Folder, snapshot: Snapshot) -> Version:
    snapshots.check_parts(folder, snapshot)
    content = {**snapshot.content["lineage"], "items": snapshot.content["items"]}
    try:
        record = BuildRecord.model_validate(content)
        snapshot = _state_newer_tables(snapshot, Pipeline(record.profile, record.until))
        version = Version.from_record(folder, record, snapshot)
        _ = version.stages  # planned here, where an error names the release
    except (ValidationError, KeyError, PairwrightError) as error:
        raise StoreError(
            f"{folder.url}: version {snapshot.number} was made by another release, and this one "
            f"cannot open it: {' '.join(str(error).split())}. Open it with that release, or build "
            "again: `pairwright build` makes a version that this one opens"
        ) from error
    return version


def _state_newer_tables(snapshot: Snapshot, pipeline: Pipeline) -> Snapshot:
    """Return a version of an earlier release with its newer tables, which are off, as empty ones.

    ``StoreError`` where a table of the version is gone, or a newer one is on.
    """
    stated = snapshot.content["stages"]
    differing = set(pipeline.tables).symmetric_difference(stated)
    if not differing:
        return snapshot
    stages = dict(stated)
    for planned in pipeline.plan():
        name = planned.stage.name
        if name in differing and not planned.is_on:
            counts = Counts(stage=name, fingerprint=planned.fingerprint).as_json()
            stages[name] = {
                "fingerprint": planned.fingerprint,
                "counts": counts,
                "parts": {},
                "refused": [],
            }
            differing.remove(name)
    if differing:
        raise StoreError(f"one of the two has no table {', '.join(sorted(differing))}")
    return Snapshot(snapshot.number, {**snapshot.content, "stages": stages})


def _read_counts(stated: Mapping[str, Any]) -> Counts:
    """Return the counts of a stage that a version states."""
    values = dict(stated["counts"])
    inputs = values.pop("in")
    return Counts(of=inputs, **values)


def publish_version(
    build: Build,
    done: Sequence[tuple[Planned, Counts]],
    *,
    version: Version,
    began: str,
    stopped: str = "",
    force: bool = False,
) -> tuple[Snapshot | None, gates.Verdict]:
    """Check resolved stages against the gates and publish them.

    Return the newest version, if any, and the verdict.

    ``stopped``: why the build ended early.
    """
    config = version.profile.gates
    judged = (
        *gates.measure_gates(config, done, _judged_tables(version, done)),
        *_judge_source(build, done, version),
    )
    published = force or all(gate.holds for gate in judged)
    if published:
        snapshot = snapshots.write_snapshot(build, done, record=version.record)
    else:
        snapshot = snapshots.latest_snapshot(build.folder)
    verdict = gates.Verdict(
        began=began,
        ended=now(),
        complete=not any(counts.failed or counts.pending for _, counts in done),
        version=snapshot.number if published and snapshot else 0,
        gates=judged,
        stopped=stopped,
    )
    gates.write_verdict(build.folder, verdict)
    return snapshot, verdict


def _judge_source(
    build: Build, done: Sequence[tuple[Planned, Counts]], version: Version
) -> Iterator[gates.Gate]:
    """Yield the gate of images that left the source, unless the source or its settings changed."""
    latest = snapshots.latest_snapshot(build.folder)
    images = next(count for planned, count in done if planned.stage.writes is ImageRow)
    if latest is None:
        return
    try:
        record = BuildRecord.model_validate({**latest.content["lineage"], "items": ()})
    except (ValidationError, PairwrightError):  # of another release
        return
    is_same = record.profile.source_config == version.profile.source_config
    if not is_same or record.limit != version.limit:
        return
    entries = read_takedowns(build.folder)
    removed = removed_by(entry for entry in entries if entry.number > latest.takedowns)
    stated = latest.content["stages"].get(images.stage)
    if stated:
        before = stated["counts"]["rows"] - len(removed)
        yield from gates.judge_source(version.profile.gates, images, before=before)


def _judged_tables(version: Version, done: Sequence[tuple[Planned, Counts]]) -> list[str]:
    """Return the tables whose rows the gates judge.

    The last one, or the results of the last group.
    """
    until = version.pipeline.until
    stages = [planned.stage for planned, _ in done]
    if until in (stage.name for stage in stages):
        return [until]
    last_group = stages[-1].group
    return [stage.name for stage in stages if stage.group == last_group and stage.name in RESULTS]


def publish_anyway(folder: Folder) -> gates.Verdict:
    """Publish the current state of a dataset, whatever its gates."""
    earlier = gates.read_verdict(folder)
    began = earlier.began if earlier else now()
    present = open_present(folder)
    with present.resolved(with_off=True) as (build, done):
        _, verdict = publish_version(build, done, version=present, began=began, force=True)
    return verdict


def now() -> str:
    """Return the time, to the microsecond, in the form of verdicts."""
    return datetime.now(UTC).isoformat()
