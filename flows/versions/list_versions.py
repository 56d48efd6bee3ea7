"""List a dataset's versions: time, rows, and changed settings.

Reads the snapshot files of any release, and the names of the existing parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pairwright.flows.building.run_build import OWN_NOTES
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import say_changes
from pairwright.tasks.store.build import Snapshot, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.lineage import StageDiff, diff_stage
from pairwright.tasks.store.snapshot import missing_files, read_snapshot, snapshot_numbers


@dataclass(frozen=True, kw_only=True)
class VersionSummary:
    """Version in the list."""

    version: int
    created: str
    parent: int | None
    newest: bool
    rows: dict[str, int]
    changed: list[
        str
    ]  # settings that changed from its parent, in words; empty if the parent is deleted
    removed: int  # last removal on request that it takes into account; 0: none
    missing: int

    def cells(self) -> list[object]:
        """Return its cells in a table; of its rows, the first and the last table's."""
        last = list(self.rows.items())
        rows = ", ".join(
            f"{name} {count:,}" for name, count in dict([*last[:1], *last[-1:]]).items()
        )
        state = (
            f"{self.missing:,} of its files are gone"
            if self.missing
            else "newest"
            if self.newest
            else ""
        )
        published = self.created.replace("T", " ").removesuffix("+00:00")
        return [
            self.version,
            published,
            self.parent or "-",
            rows,
            "; ".join(self.changed) or "-",
            state,
        ]


def list_versions(folder: Folder) -> list[VersionSummary]:
    """Return the versions of a dataset, the oldest first."""
    read_record(folder)
    snapshots = {number: read_snapshot(folder, number) for number in snapshot_numbers(folder)}
    return [
        VersionSummary(
            version=number,
            created=content["created"],
            parent=content["parent"],
            newest=number == max(snapshots),
            rows={name: stage["counts"]["rows"] for name, stage in content["stages"].items()},
            changed=list(_changes(parent, snapshot))
            if (parent := snapshots.get(content["parent"] or 0))
            else [],
            removed=content.get("takedowns", 0),
            missing=len(missing_files(folder, snapshot)),
        )
        for number, snapshot in snapshots.items()
        for content in [snapshot.content]
    ]


def _changes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    lineages = (one.content["lineage"] for one in (before, after))
    old, new = (
        {**one["profile"], "limit": one["limit"], "until": one["until"]} for one in lineages
    )
    yield from say_changes(old, new, free=OWN_NOTES)
    if before.content["items"] != after.content["items"]:
        yield "the source lists other items"
    if (count := after.content.get("takedowns", 0)) != before.content.get("takedowns", 0):
        yield f"removals on request up to number {count} apply"


@dataclass(frozen=True, kw_only=True)
class VersionDifference:
    """Difference between two versions."""

    before: int
    after: int
    settings: list[str]
    stages: list[StageDiff]

    def cells(self) -> Iterator[list[object]]:
        """Yield heads, then per table its rows, and those that came and went."""
        yield [
            *("table", f">rows of {self.before}", f">rows of {self.after}"),
            *(">in", ">out", ">ended otherwise", "fingerprint"),
        ]
        for one in self.stages:
            old, new = one.fingerprints
            fingerprint = new if old == new else f"{old or '-'} -> {new or '-'}"
            yield [
                one.stage,
                *one.rows,
                one.came,
                one.went,
                sum(turn.count for turn in one.turned),
                fingerprint,
            ]

    def lines(self) -> Iterator[str]:
        """Yield the rest as lines: settings, and inputs with another outcome."""
        yield from (f"  {line}" for line in self.settings)
        for one in self.stages:
            yield from (
                f"  {one.stage}: {turn.count:,} x {turn.before} -> {turn.after}"
                for turn in one.turned
            )


def diff_versions(before: Version, after: Version, *, stage: str = "") -> VersionDifference:
    """Compare two versions; rows are compared by key."""
    with before.settled() as (old, _), after.settled() as (new, _):
        planned = {one.stage.name: one.stage.group for one in (*new.planned, *old.planned)}
        names = [name for name, group in planned.items() if stage in ("", name, group)]
        if not names:
            raise ConfigError(
                f"--stage {stage}: neither version has this table. They have {', '.join(planned)}"
            )
        assert before.snapshot
        assert after.snapshot
        return VersionDifference(
            before=before.number,
            after=after.number,
            settings=list(_changes(before.snapshot, after.snapshot)),
            stages=[diff_stage(old, new, name) for name in names],
        )
