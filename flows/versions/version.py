"""Open a version of a dataset, or its current tables; publish these as a version if its gates hold.

A running build changes no version: a version is planned from its own record, and only the parts
that it names are read. All readers of a dataset go through here: ``flows.dataset`` and the modules
that it calls.
"""

import tempfile
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.stages import RESULTS
from pairwright.prompts import load
from pairwright.schemas.config import BuildRecord, Profile
from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError
from pairwright.schemas.section import Section
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store import gates
from pairwright.tasks.store import snapshot as snapshots
from pairwright.tasks.store.build import Build, Snapshot, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.index import Index, open_index_file, write_index
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned, Stage, fingerprint
from pairwright.tasks.store.takedowns import read_takedowns

Settled = tuple[
    Build, list[tuple[Planned, Counts]]
]  # an open build, and its stages with their counts


@dataclass(frozen=True, kw_only=True)
class Version:
    """Version of a dataset: its record, the planned stages, the snapshot that names their parts.

    with open_version(Folder("album"), 3).settled() as (build, stages):
        print({planned.stage.name: counts.rows for planned, counts in stages})
    """

    folder: Folder
    record: BuildRecord
    planned: Sequence[Planned]
    off: Sequence[Planned] = ()  # stages that are off, with empty tables that are not read
    snapshot: Snapshot | None = None  # ``None``: the current tables
    _indexes: dict[str, Index] = field(default_factory=dict[str, Index], compare=False, repr=False)

    @classmethod
    def of(cls, folder: Folder, record: BuildRecord) -> Self:
        """Return the current tables of a build."""
        return cls(
            folder=folder, record=record, planned=Pipeline(record.profile, record.until).plan()
        )

    @property
    def number(self) -> int:
        """Return the version's number; 0: the current tables."""
        return self.snapshot.number if self.snapshot else 0

    @property
    def profile(self) -> Profile:
        """Return the profile that it was built with."""
        return self.record.profile

    def find(self, table: str) -> Planned:
        """Return the stage that writes a table."""
        for planned in (*self.planned, *self.off):
            if planned.stage.name == table:
                return planned
        there = ", ".join(planned.stage.name for planned in self.planned)
        raise ConfigError(f"{self.folder.url}: has no table {table}. It has {there}")

    def opened(self, beside: Sequence[Planned] = ()) -> Build:
        """Return the build of its tables and of others beside them, not entered or settled yet."""
        run = self.profile.run
        size = READERS[self.profile.sources.kind].rows_per_shard
        reading = {one.stage.name: size for one in self.planned if "items" in one.stage.reads}
        sizes = {**reading, **run.rows_per_shard_of}
        planned = [*self.planned, *beside]
        return Build(
            self.folder, planned, self.record.items, run.rows_per_shard, sizes, self.snapshot
        )

    @contextmanager
    def settled(self, beside: Sequence[Planned] = ()) -> Generator[Settled]:
        """Open its tables and others beside them, with every stage counted, without running anything."""
        with self.opened(beside) as build:
            own = self.settle(build, self.planned)
            yield build, [*own, *((planned, build.settle(planned)) for planned in beside)]

    def settle(self, build: Build, planned: Iterable[Planned]) -> list[tuple[Planned, Counts]]:
        """Settle some of its stages, after the earlier ones; return them with the version's counts."""
        found: list[tuple[Planned, Counts]] = []
        for one in planned:
            name, counts = one.stage.name, build.settle(one)
            if self.snapshot:
                stated = self.snapshot.content["stages"][name]
                if dict(build.ledger.live_parts(name)) != stated["parts"]:
                    raise StoreError(
                        f"{self.folder.url}: version {self.number} states {sum(stated['parts'].values()):,} rows of "
                        f"{name}, but its parts hold {counts.rows:,}: another release made it, or a part has changed. "
                        "Open another version (`pairwright versions`), or build again"
                    )
                counts = _counts(stated["counts"])
            found.append((one, counts))
        return found

    def counts(self) -> list[Counts]:
        """Return the counts of each stage, of the version or of the current tables."""
        if self.snapshot is None:
            with self.settled() as (_, stages):
                return [counts for _, counts in stages]
        stated = self.snapshot.content["stages"]
        return [_counts(stated[planned.stage.name]["counts"]) for planned in self.planned]

    def stated_counts(self, newest: Snapshot) -> list[Counts] | None:
        """Return the counts of the newest version, if the current tables are exactly its parts.

        ``None`` if they are not, or if rows are owed, since it does not state their reasons.
        """
        stages, content = newest.content["stages"], newest.content
        entries = read_takedowns(self.folder)
        if [*self.record.items] != content["items"] or content["takedowns"] != (
            entries[-1].number if entries else 0
        ):
            return None
        for one in self.planned:
            stated = stages.get(one.stage.name)
            if stated is None or stated["fingerprint"] != one.fingerprint:
                return None
            parts = {*stated["parts"], *stated["refused"]} if one.stage.is_on else None
            there = parts if parts is None else set(self.folder.names(one.table)) - {".lock"}
            if stated["counts"]["failed"] or stated["counts"]["pending"] or there != parts:
                return None
        return [_counts(stages[one.stage.name]["counts"]) for one in self.planned]

    def index(self, table: str) -> Index:
        """Return the index of a table's live rows; settles only the stages that lead to it, and writes nothing."""
        if table not in self._indexes:
            last = self.find(table)
            needed, leading = {table}, list[Planned]()
            for one in reversed([*self.planned, *self.off]):
                if one.stage.name in needed:
                    leading.append(one)
                    needed |= one.stage.tables
            with self.opened() as build, tempfile.TemporaryDirectory(prefix="pairwright-") as place:
                self.settle(build, leading[::-1])
                names, file = build.ledger.part_names(table), Path(place, "index.arrow")
                write_index(file, build.ledger.index(table), names)
                self._indexes[table] = open_index_file(file, self.folder, last.table)
        return self._indexes[table]

    def plan(self, stage: Stage, config: Section, *, after: Sequence[Planned] = ()) -> Planned:
        """Return a stage planned beside the version's own, with pinned models, without running it."""
        own = stage.pin(config) if stage.pin else config
        fitted = stage.fit(stage, own) if stage.fit else stage
        tables = {other.stage.name: other.fingerprint for other in (*self.planned, *after)}
        if missing := fitted.tables - tables.keys():
            raise ConfigError(
                f"{stage.name}: needs {', '.join(sorted(missing))}, which this dataset lacks"
            )
        prompts = {name: load(name).sha256 for name in fitted.prompts}
        return Planned(
            stage=fitted,
            config=own,
            fingerprint=fingerprint(fitted, own, prompts=prompts, tables=tables),
        )


def open_version(folder: Folder, number: int | None = None) -> Version:
    """Return a version of a dataset after checking its files; without a number, the newest, or the current tables."""
    if number is None:
        snapshot = snapshots.latest_snapshot(folder)
    elif number in (there := snapshots.snapshot_numbers(folder)):
        snapshot = snapshots.read_snapshot(folder, number)
    else:
        read_record(folder)  # raises if there is no dataset at all
        known = ", ".join(map(str, there)) or "none yet"
        raise ConfigError(f"{folder.url}: no version {number}; choose from {known}")
    found = _stated(folder, snapshot) if snapshot else open_present(folder)
    on = {
        is_on: [one for one in found.planned if one.stage.is_on is is_on] for is_on in (True, False)
    }
    return replace(found, planned=on[True], off=on[False])


def open_present(folder: Folder) -> Version:
    """Return the record of a dataset's last build, with the current tables."""
    return Version.of(folder, read_record(folder))


def _stated(folder: Folder, snapshot: Snapshot) -> Version:
    snapshots.check_parts(folder, snapshot)
    stated: dict[str, Any] = snapshot.content["stages"]
    try:
        record = BuildRecord.model_validate(
            {**snapshot.content["lineage"], "items": snapshot.content["items"]}
        )
        planned = Version.of(folder, record).planned
        if (own := {one.stage.name for one in planned}) != set(stated):
            raise StoreError(
                f"it has the tables {', '.join(stated)}; now they are {', '.join(own)}"
            )
    except (ValidationError, KeyError, PairwrightError) as error:
        raise StoreError(
            f"{folder.url}: version {snapshot.number} was made by another release, and this one cannot open it: "
            f"{' '.join(str(error).split())}. Open it with that release, or build again: `pairwright build` makes a "
            "version that this one opens"
        ) from error
    planned = [replace(one, fingerprint=stated[one.stage.name]["fingerprint"]) for one in planned]
    return Version(folder=folder, record=record, planned=planned, snapshot=snapshot)


def _counts(stated: dict[str, Any]) -> Counts:
    return Counts(
        of=stated["in"], **{name: value for name, value in stated.items() if name != "in"}
    )


def publish_version(
    build: Build,
    done: Sequence[tuple[Planned, Counts]],
    *,
    record: BuildRecord,
    began: str,
    stopped: str = "",
    force: bool = False,
) -> tuple[Snapshot | None, gates.Verdict]:
    """Check settled stages against the gates and publish them; return the newest version, if any, and the verdict.

    ``stopped``: why the build ended early.
    """
    stages, asked = [planned.stage for planned, _ in done], [record.until]
    if record.until not in (
        stage.name for stage in stages
    ):  # it ends with a group: its results are judged
        asked = [
            stage.name
            for stage in stages
            if stage.group == stages[-1].group and stage.name in RESULTS
        ]
    judged = tuple(gates.judge(record.profile.gates, done, asked))
    published = force or all(gate.holds for gate in judged)
    before = snapshots.latest_snapshot(build.folder)
    snapshot = snapshots.write_snapshot(build, done, record=record) if published else before
    verdict = gates.Verdict(
        began=began,
        ended=now(),
        complete=not any(count.failed or count.pending for _, count in done),
        version=snapshot.number if published and snapshot else 0,
        gates=judged,
        stopped=stopped,
    )
    gates.write_verdict(build.folder, verdict)
    return snapshot, verdict


def publish_anyway(folder: Folder) -> gates.Verdict:
    """Publish the current state of a dataset, whatever its gates."""
    earlier, present = gates.read_verdict(folder), open_present(folder)
    with present.settled() as (build, done):
        began = earlier.began if earlier else now()
        return publish_version(build, done, record=present.record, began=began, force=True)[1]


def now() -> str:
    """Return the time, to the microsecond, in the form of verdicts."""
    return datetime.now(UTC).isoformat()
