"""Open a dataset as one of its versions: the newest where none is named. What a build does meanwhile changes nothing.

A version is planned from its own record, and only the parts that it names are read. Where there is no version yet, the
tables are taken as they are now.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from pairwright.flows.pipeline import plan_stages
from pairwright.flows.run_build import Request, open_build, request_of
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.snapshot import (
    Snapshot,
    check_parts,
    latest_snapshot,
    pinned_by,
    read_snapshot,
    snapshot_numbers,
)
from pairwright.tasks.store.stage import Planned


@dataclass(frozen=True, kw_only=True)
class Version:
    """Be what a dataset is opened by: a published version, or what its last build was asked for."""

    request: Request
    items: Sequence[str]
    """The parts that list the source."""
    planned: Sequence[Planned]
    snapshot: Snapshot | None
    """None: there is no version, and the tables are as they are now."""

    @property
    def number(self) -> int:
        """Return the version's number; 0: there is none."""
        return self.snapshot.number if self.snapshot else 0

    def opened(self, beside: Sequence[Planned] = ()) -> Build:
        """Return the build of its tables and of others beside them, to be entered; every stage must be settled."""
        build = open_build(self.request, [*self.planned, *beside], self.items)
        return replace(build, pinned=pinned_by(self.snapshot)) if self.snapshot else build


@contextmanager
def opened(folder: Folder, version: int | None = None) -> Generator[tuple[Build, list[tuple[Planned, Counts]]]]:
    """Open a version of a dataset, every stage counted, without running anything; without a number, the newest.

    Raises:
        ConfigError: there is no dataset, or no such version.
        StoreError: a file of the version is gone or damaged, or another release wrote it, whose record is not read.
    """
    found = find_version(folder, version)
    with found.opened() as build:
        yield build, settle_version(build, found)


def find_version(folder: Folder, version: int | None = None) -> Version:
    """Return what a version is opened by, its files looked up; without a number, the newest.

    Raises:
        ConfigError: there is no dataset, or no such version.
        StoreError: a file of it is gone, or another release wrote it, whose record is not read.
    """
    snapshot = latest_snapshot(folder) if version is None else _find(folder, version)
    if snapshot is None:
        request, items = request_of(folder)
        planned = [one for one in plan_stages(request.profile, request.until) if one.stage.is_on]
        return Version(request=request, items=items, planned=planned, snapshot=None)
    check_parts(folder, snapshot)
    request = _request(folder, snapshot)
    return Version(
        request=request, items=snapshot.content["items"], planned=_plan(folder, snapshot, request), snapshot=snapshot
    )


def settle_version(build: Build, version: Version) -> list[tuple[Planned, Counts]]:
    """Settle an opened version's own stages; return them with what the version states of them.

    Raises:
        StoreError: a table holds other rows than the version states.
    """
    counted = [(planned, build.settle(planned)) for planned in version.planned]
    if version.snapshot is None:
        return counted
    stated = version.snapshot.content["stages"]
    for planned, counts in counted:
        name = planned.stage.name
        live = dict(build.ledger.live_parts(name))
        if live != stated[name]["parts"]:
            raise StoreError(
                f"{build.folder.url}: version {version.number} states {sum(stated[name]['parts'].values()):,} rows of "
                f"{name}, and its parts hold {counts.rows:,}: another release made it, or a part was changed. Open "
                "another version (`pairwright versions`), or build again"
            )
    return [(planned, _counts(stated[planned.stage.name]["counts"])) for planned, _ in counted]


def _find(folder: Folder, number: int) -> Snapshot:
    if number not in (there := snapshot_numbers(folder)):
        request_of(folder)  # says so where there is no dataset at all
        known = ", ".join(map(str, there)) or "none yet"
        raise ConfigError(f"{folder.url}: there is no version {number}. There are: {known}")
    return read_snapshot(folder, number)


def _request(folder: Folder, snapshot: Snapshot) -> Request:
    """Return what the version's build was asked for."""
    try:
        record = BuildRecord.model_validate(snapshot.content["lineage"])
    except (ValidationError, KeyError) as error:
        raise _other_release(folder, snapshot, _said(error)) from error
    return Request(folder=folder, profile=record.profile, limit=record.limit, until=record.until)


def _plan(folder: Folder, snapshot: Snapshot, request: Request) -> list[Planned]:
    """Return the version's stages that are on, each with the table that the version states."""
    try:
        planned = plan_stages(request.profile, request.until)
    except PairwrightError as error:
        raise _other_release(folder, snapshot, str(error)) from error
    stated: dict[str, Any] = snapshot.content["stages"]
    own = [one.stage.name for one in planned]
    if set(own) != set(stated):
        raise _other_release(folder, snapshot, f"it has the tables {', '.join(stated)}; now they are {', '.join(own)}")
    return [replace(one, fingerprint=stated[one.stage.name]["fingerprint"]) for one in planned if one.stage.is_on]


def _other_release(folder: Folder, snapshot: Snapshot, why: str) -> StoreError:
    return StoreError(
        f"{folder.url}: version {snapshot.number} was made by another release, and this one cannot open it: {why}. "
        "Open it with that release, or build again: `pairwright build` makes a version that this one opens"
    )


def _said(error: ValidationError | KeyError) -> str:
    if isinstance(error, KeyError):
        return f"it states no {error}"
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)[:3])


def _counts(stated: dict[str, Any]) -> Counts:
    return Counts(of=stated["in"], **{name: value for name, value in stated.items() if name != "in"})
