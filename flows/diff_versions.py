"""Compare two versions of a dataset: settings, and per table the rows in and out and the outcomes that changed."""

from dataclasses import asdict, dataclass
from typing import Any

from pairwright.flows.list_versions import changes_between
from pairwright.flows.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.diff import StageDiff, diff_stage
from pairwright.tasks.store.snapshot import find_live


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Difference between two versions."""

    before: int
    after: int
    settings: list[str]
    """What was asked for otherwise, in words."""
    stages: list[StageDiff]
    names: dict[str, str]
    """Of the listed images, by key."""

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return asdict(self)


def diff_versions(before: Version, after: Version, *, stage: str = "", listed: bool = False) -> Difference:
    """Compare two versions; rows are compared by key.

    Args:
        before: the one.
        after: the other.
        stage: only this table or group; empty: all.
        listed: whether the keys are wanted, too.

    Raises:
        ConfigError: neither has such a table.
        StoreError: a version cannot be opened.
    """
    with before.settled() as (old, _), after.settled() as (new, _):
        names = dict.fromkeys(
            planned.stage.name
            for build in (new, old)
            for planned in build.planned
            if stage in ("", planned.stage.name, planned.stage.group)
        )
        if not names:
            there = ", ".join(planned.stage.name for planned in new.planned)
            raise ConfigError(f"--stage {stage}: neither version has such a table. Version {after.number} has {there}")
        stages = [diff_stage(old, new, name, listed=listed) for name in names]
        assert before.snapshot
        assert after.snapshot
        return Difference(
            before=before.number,
            after=after.number,
            settings=list(changes_between(before.snapshot, after.snapshot)),
            stages=stages,
            names={**_names(old, stages), **_names(new, stages)},
        )


def _names(build: Build, stages: list[StageDiff]) -> dict[str, str]:
    """Return what people call the listed images."""
    images = {planned.stage.name: planned for planned in build.planned if planned.stage.writes is ImageRow}
    found: dict[str, str] = {}
    for one in stages:
        if planned := images.get(one.stage):
            rows = find_live(
                build, planned, ImageRow, subjects=(*one.came_keys, *one.went_keys), without=("image", "graph")
            )
            found |= {row.key: row.name for row in rows}
    return found
