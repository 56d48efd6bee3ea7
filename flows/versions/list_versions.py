"""List a dataset's versions: time, rows, and changed settings.

Reads the snapshot files of any release, and the names of the existing parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pairwright.flows.building.run_build import OWN_NOTES
from pairwright.flows.pipeline.read_prompts import say_changed_prompts
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import say_changes
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.lineage import StageDiff, diff_stage
from pairwright.tasks.store.open_tables import Snapshot, read_record
from pairwright.tasks.store.snapshot import missing_files, read_snapshot, snapshot_numbers


@dataclass(frozen=True, kw_only=True)
class VersionSummary:
    """Version in the list."""

    version: int
    created: str
    parent: int | None
    newest: bool
    rows: dict[str, int]
    # settings that changed from its parent, in words; empty if the parent is deleted
    changed: list[str]
    removed: int  # last removal on request that it takes into account; 0: none
    missing: int

    def cells(self) -> list[object]:
        """Return its cells in a table; of its rows, the first and the last table's."""
        tables = list(self.rows.items())
        ends = dict([*tables[:1], *tables[-1:]])
        rows = ", ".join(f"{name} {count:,}" for name, count in ends.items())
        published = self.created.replace("T", " ").removesuffix("+00:00")
        changed = "; ".join(self.changed) or "-"
        return [self.version, published, self.parent or "-", rows, changed, self._state()]

    def _state(self) -> str:
        if self.missing:
            return f"{self.missing:,} of its files are gone"
        return "newest" if self.newest else ""


def list_versions(folder: Folder) -> list[VersionSummary]:
    """Return the versions of a dataset, the oldest first."""
    read_record(folder)
    snapshots = {number: read_snapshot(folder, number) for number in snapshot_numbers(folder)}
    summaries: list[VersionSummary] = []
    for number, snapshot in snapshots.items():
        content = snapshot.content
        stages: dict[str, Any] = content["stages"]
        parent = snapshots.get(content["parent"] or 0)
        summary = VersionSummary(
            version=number,
            created=content["created"],
            parent=content["parent"],
            newest=number == max(snapshots),
            rows={name: stage["counts"]["rows"] for name, stage in stages.items()},
            changed=list(_say_changes(parent, snapshot)) if parent else [],
            removed=content.get("takedowns", 0),
            missing=len(missing_files(folder, snapshot)),
        )
        summaries.append(summary)
    return summaries


def _say_changes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Yield what has changed from one version to another."""
    old, new = _read_settings(before), _read_settings(after)
    yield from say_changes(old, new, free=OWN_NOTES)
    yield from say_changed_prompts(old, new)
    if before.content["items"] != after.content["items"]:
        yield "the source lists other items"
    takedowns = after.content.get("takedowns", 0)
    if takedowns != before.content.get("takedowns", 0):
        yield f"removals on request up to number {takedowns} apply"


def _read_settings(snapshot: Snapshot) -> dict[str, Any]:
    lineage = snapshot.content["lineage"]
    return {**lineage["profile"], "limit": lineage["limit"], "until": lineage["until"]}


@dataclass(frozen=True, kw_only=True)
class VersionDifference:
    """Difference between two versions."""

    before: int
    after: int
    settings: list[str]
    stages: list[StageDiff]

    def table_lines(self) -> Iterator[list[object]]:
        """Yield heads, then per table its rows, and those that came and went."""
        yield [
            "table",
            f">rows of {self.before}",
            f">rows of {self.after}",
            ">in",
            ">out",
            ">ended otherwise",
            "fingerprint",
        ]
        for stage in self.stages:
            before, after = stage.fingerprints
            fingerprint = after if before == after else f"{before or '-'} -> {after or '-'}"
            turned = sum(turn.count for turn in stage.turned)
            yield [stage.stage, *stage.rows, stage.came, stage.went, turned, fingerprint]

    def lines(self) -> Iterator[str]:
        """Yield the rest as lines: settings, and inputs with another outcome."""
        for setting in self.settings:
            yield f"  {setting}"
        for stage in self.stages:
            for turn in stage.turned:
                yield f"  {stage.stage}: {turn.count:,} x {turn.before} -> {turn.after}"


def diff_versions(before: Version, after: Version, *, stage: str = "") -> VersionDifference:
    """Compare two versions; rows are compared by key."""
    assert before.snapshot
    assert after.snapshot
    with before.resolved() as (old, _), after.resolved() as (new, _):
        groups = {
            planned.stage.name: planned.stage.group for planned in (*new.planned, *old.planned)
        }
        names = [name for name, group in groups.items() if stage in ("", name, group)]
        if not names:
            tables = ", ".join(groups)
            raise ConfigError(
                f"--stage {stage}: neither version has this table. They have {tables}"
            )
        return VersionDifference(
            before=before.number,
            after=after.number,
            settings=list(_say_changes(before.snapshot, after.snapshot)),
            stages=[diff_stage(old, new, name) for name in names],
        )
