"""Delete what no kept version and not the present state of a dataset needs, and what was removed on request.

Reads the tables' key columns, and writes parts anew where some of their rows have to go. Nothing is deleted that a kept
version names, nor while a build, an export or another reader is at work (on an object store, where there are no locks,
that is the caller's care).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pairwright.flows.stages import BY_NAME
from pairwright.flows.version import open_present, open_version
from pairwright.schemas.errors import PairwrightError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.dataset import alone, read_record
from pairwright.tasks.store.decisions import forget_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.find_copies import find_copies
from pairwright.tasks.store.garbage import (
    Needed,
    Plan,
    carry_out,
    files_below,
    judge_beside,
    left_work,
    list_parts,
    mixed_parts,
    other_folders,
    unneeded_parts,
)
from pairwright.tasks.store.snapshot import latest_snapshot, part_files, read_snapshot, snapshot_numbers
from pairwright.tasks.store.takedowns import last_unswept, read_takedowns, removed_by, write_swept
from pairwright.tasks.training.freeze_rows import frozen_places
from pairwright.tasks.training.runs import Run

Watch = Callable[[int, int], None]
"""Hear how many steps are done, of how many."""


@dataclass(kw_only=True)
class Collected:
    """Outcome of clearing up: what was deleted, or would be."""

    plan: Plan
    kept: list[int]
    """Versions that stay."""
    gone: dict[int, str]
    """Per version that goes, why."""
    blocked: str = ""
    """Why what was removed on request cannot go yet."""
    swept: int = 0
    """The last removal of which nothing is left in the tables now; 0: there was none."""
    broken: Sequence[str] = ()
    """Unfinished trainings that cannot go on, since rows of theirs have to go."""
    copies: Sequence[str] = ()
    """Files beside the tables that hold something of a removed image; they are not touched."""
    freed: int = 0
    """Bytes."""


@dataclass(frozen=True)
class Present:
    """Present state of a dataset."""

    tables: list[str]
    known: dict[str, str]
    """What was removed on request."""
    owes: bool


def collect_garbage(folder: Folder, *, keep: int | None, dry_run: bool, watch: Watch | None = None) -> Collected:
    """Delete what is not needed; say what that was.

    Args:
        folder: the dataset.
        keep: how many versions are kept, the newest ones; ``None``: all.
        dry_run: only say what would go.
        watch: is told how far it is.

    Raises:
        ConfigError: there is no dataset, or a training goes on whose rows may have to go.
        StoreError: a build or a reader is at work, or a file cannot be read, written or deleted.
    """
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(alone(folder))
        sweep = last_unswept(folder, read_takedowns(folder))
        for run in _runs(folder) if sweep and not dry_run else ():
            stack.enter_context(run.locked())
        found = plan_garbage(folder, keep, sweep)
        if dry_run:
            return found
        for done, freed in enumerate(carry_out(folder, found.plan), 1):
            found.freed += freed
            if watch:
                watch(done, found.plan.steps)
        if found.swept:
            forget_decisions(folder, found.plan.needed.names)
            write_swept(folder, found.swept)
    return found


def plan_garbage(folder: Folder, keep: int | None, sweep: int) -> Collected:
    """Return what is to be deleted; ``sweep`` is the last removal on request of which something may be left."""
    numbers = snapshot_numbers(folder)
    kept = numbers[-keep:] if keep else numbers
    gone = {number: "there are newer ones" for number in numbers if number not in kept}
    needed = Needed()
    present = _look(folder, needed)
    blocked = _why_not(folder, present, sweep) if sweep else ""
    sweeping = bool(sweep and not blocked)
    if sweeping:
        gone |= dict(_need_versions(folder, kept, present, needed))
    else:
        _need_files(folder, kept, present, needed)
    beside = [
        table
        for table in _beside(folder)
        if (present.owes and not sweeping) or judge_beside(folder, table, needed, strictly=sweeping)
    ]
    plan = Plan(
        versions=sorted(gone),
        parts=list(mixed_parts(folder, needed, present.known)) if sweeping else [],
        files=[
            *unneeded_parts(folder, needed, () if sweeping else beside),
            *left_work(folder),
            *_unnamed_sets(folder),
        ],
        folders=list(other_folders(folder, [*present.tables, *beside], everything=sweeping)),
        needed=needed,
        known=present.known if sweeping else {},
    )
    return Collected(
        plan=plan,
        kept=[number for number in kept if number not in gone],
        gone=dict(sorted(gone.items())),
        blocked=blocked,
        swept=sweep if sweeping else 0,
        broken=list(_broken(folder, needed)) if sweeping else (),
        copies=list_copies(folder) if sweep else (),
    )


def list_copies(folder: Folder) -> list[str]:
    """Return the files beside the tables that hold something of a removed image, those that had it then included."""
    entries = read_takedowns(folder)
    removed = removed_by(entries)
    told = {path for entry in entries if removed.intersection(entry.keys) for path in entry.copies}
    return sorted({path for path in told if folder.exists(path)}.union(find_copies(folder, removed)))


def _look(folder: Folder, needed: Needed) -> Present:
    with open_present(folder).settled() as (build, stages):
        needed.add(build)
        return Present(
            tables=[planned.table for planned, _ in stages],
            known=dict(build.ledger.removed.known),
            owes=any(counts.pending for _, counts in stages),
        )


def _why_not(folder: Folder, present: Present, sweep: int) -> str:
    """Say why what was removed is still needed; empty: it is not."""
    newest = latest_snapshot(folder)
    if present.owes:
        return f"rows are owed without the removed images. First run: pairwright resume {folder.url}"
    if newest and newest.content.get("takedowns", 0) < sweep:
        return (
            f"version {newest.number}, the newest, is from before the removal. First publish one without the removed "
            f"images: pairwright resume {folder.url}"
        )
    return ""


def _need_versions(folder: Folder, kept: Sequence[int], present: Present, needed: Needed) -> Iterator[tuple[int, str]]:
    """Enter the rows of the versions that hold no removed image; yield the others, and why they cannot be kept."""
    for number in kept:
        try:
            with open_version(folder, number).settled() as (build, stages):
                own = [planned.stage.name for planned, _ in stages if "items" in planned.stage.reads]
                if any(build.ledger.holds(name, list(present.known)) for name in own):
                    yield number, "it holds what was removed on request"
                else:
                    needed.add(build)
        except PairwrightError as error:
            if number == kept[-1]:
                raise
            yield number, f"whether it holds what was removed on request cannot be known: {error}"


def _need_files(folder: Folder, kept: Sequence[int], present: Present, needed: Needed) -> None:
    """Enter the parts that kept versions name, those of unfinished trainings, and all present ones if rows are owed."""
    for number in kept:
        needed.files.update(part_files(read_snapshot(folder, number)))
    for _, places in _frozen(folder):
        needed.files.update(places)
    if present.owes:  # what is still made may find its rows again, of which it is not known yet that it will
        needed.files.update(f"{table}/{file}" for table, file in list_parts(folder) if table in present.tables)


def _beside(folder: Folder) -> Iterator[str]:
    """Yield the tables that trainings have made beside the dataset's own."""
    own = {*BY_NAME, "items"}
    yield from sorted({table for table, _ in list_parts(folder) if table.split("/")[1] not in own})


def _unnamed_sets(folder: Folder) -> Iterator[str]:
    """Yield the files of excluded sets that the dataset's profile no longer names."""
    named = {make_key(source)[:16] for source in read_record(folder).profile.exclude.sources}
    for name in folder.folders("excluded"):
        yield from files_below(folder, f"excluded/{name}") if name not in named else ()


def _runs(folder: Folder) -> "Iterator[Run]":
    """Yield the trainings of a dataset."""
    places = sorted(Path(folder.path("runs")).glob("*/config.yaml")) if folder.is_local else []
    yield from (Run(place.parent) for place in places)


def _frozen(folder: Folder) -> Iterator[tuple[str, dict[str, set[int]]]]:
    """Yield the unfinished trainings, and where their rows are."""
    for run in _runs(folder):
        if not run.is_finished and run.rows.exists():
            yield run.folder.name, frozen_places(run.rows)


def _broken(folder: Folder, needed: Needed) -> Iterator[str]:
    """Yield the unfinished trainings some of whose rows are no longer needed."""
    for name, places in _frozen(folder):
        if any(path not in needed.rows or rows - set(needed.rows[path].tolist()) for path, rows in places.items()):
            yield name
