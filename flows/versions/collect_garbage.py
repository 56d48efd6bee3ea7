"""Delete the files of a dataset that neither a kept version nor the current state needs.

Mark and sweep: the files of the current tables, of kept versions and of unfinished trainings are
live; the other files of the tables are deleted. Never while a build or a reader is running (an
object store has no locks). Parts with rows about removed images are written again without these
rows' content; all other rows stay as they are. A version that names the new parts is published,
older versions that hold removed images are deleted, then the old parts. Neither the source nor a
model is needed.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.errors import PairwrightError
from pairwright.schemas.rows import make_key
from pairwright.tasks.mining.admit_images import erase_references
from pairwright.tasks.store import garbage
from pairwright.tasks.store.decision_table import forget_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD, Build, Snapshot, alone, read_record
from pairwright.tasks.store.snapshot import (
    part_files,
    read_snapshot,
    rename_parts,
    snapshot_numbers,
    write_snapshot,
)
from pairwright.tasks.store.takedowns import (
    last_unswept,
    read_takedowns,
    removed_by,
    write_swept,
)
from pairwright.tasks.training.freeze_rows import frozen_places
from pairwright.tasks.training.runs import Run

OWN = ("tables", "snapshots", "takedowns", "decisions", "work", "journals", "excluded")
"""Folders of a dataset that are cleaned up; others are not touched."""
OUTDATED = "there are newer ones"
HOLDS_REMOVED = "it holds removed images"
UNCHECKED = "it may hold removed images, which cannot be checked"


@dataclass(kw_only=True)
class Collected:
    """Outcome of the garbage collection: what was deleted, or would be."""

    plan: garbage.GarbagePlan
    live: garbage.LiveFiles
    kept: list[int]
    gone: dict[int, str]  # deleted versions, with reasons
    swept: int = 0  # last removal that is gone from the tables completely; 0: none
    # unfinished trainings that cannot continue, since rows of theirs are deleted
    broken: Sequence[str] = ()
    untouched: Sequence[str] = ()  # folders that may hold parts of a removed image
    freed: int = 0


def collect_garbage(
    folder: Folder,
    *,
    keep: int | None,
    dry_run: bool,
    watch: Callable[[int, int], None] | None = None,
) -> Collected:
    """Delete unneeded files; return what was deleted."""
    with ExitStack() as stack:
        if not dry_run:
            stack.enter_context(alone(folder))
        removal = last_unswept(folder, read_takedowns(folder))
        if removal and not dry_run:
            for run in _list_runs(folder):
                stack.enter_context(run.lock_run())
        removed = _find_removed(folder) if removal else Removed()
        if removed.places and not dry_run:
            _erase(folder, removed, removal)
        collected = _plan_collection(folder, keep, removed, removal)
        if dry_run:
            return collected
        for done, freed in enumerate(garbage.carry_out(folder, collected.plan), 1):
            collected.freed += freed
            if watch:
                watch(done, collected.plan.step_count)
        if removal:
            forget_decisions(folder, removed.keys)
            _clean_excluded(folder)
            write_swept(folder, removal)
    return collected


@dataclass(kw_only=True)
class Removed:
    """Rows about removed images in the files of a dataset."""

    places: dict[str, set[int]] = field(default_factory=dict[str, set[int]])  # rows by part
    keys: set[str] = field(default_factory=set[str])  # images, and rows about them

    def add(self, build: Build) -> None:
        """Add the rows of a resolved build."""
        for path, rows in garbage.find_removed(build).items():
            self.places.setdefault(path, set()).update(rows)
        self.keys.update(build.ledger.removed_keys)


def _find_removed(folder: Folder) -> Removed:
    """Return the rows about removed images of the newest version and the current tables."""
    removed = Removed()
    for version in (open_version(folder), open_present(folder)):
        with version.resolved() as (build, _):
            removed.add(build)
    return removed


def _erase(folder: Folder, removed: Removed, removal: int) -> None:
    """Write parts without removed images, and publish a version that names these."""
    names: dict[str, str] = {}
    for path, rows in removed.places.items():
        names[path] = garbage.erase_rows(folder, path, rows, takedown=removal)
    newest = open_version(folder)
    if newest.snapshot is None:
        return
    content = rename_parts(newest.snapshot.content, names)
    renamed = replace(newest, snapshot=Snapshot(newest.number, content))
    with renamed.opened(with_off=True) as build:
        done = [(planned, build.resolve(planned)) for planned in renamed.stages]
        write_snapshot(build, done, record=renamed.record)


def _clean_excluded(folder: Folder) -> None:
    """Delete removed images from the sets of images to exclude."""
    for name in folder.folders("excluded"):
        if not folder.exists(f"excluded/{name}/{RECORD}"):
            continue
        excluded = Folder(f"{folder.url.rstrip('/')}/excluded/{name}")
        collect_garbage(excluded, keep=None, dry_run=False)
        erase_references(excluded, removed_by(read_takedowns(excluded)))


def _plan_collection(folder: Folder, keep: int | None, removed: Removed, removal: int) -> Collected:
    """Return what to delete; ``removal`` is the last removal on request that may have left rows."""
    numbers = snapshot_numbers(folder)
    newest_numbers = numbers[-keep:] if keep else numbers
    gone = {number: OUTDATED for number in numbers if number not in newest_numbers}
    live = garbage.LiveFiles()
    tables, unfinished = _mark_current(folder, live, without=removed.places)
    if removal:
        gone.update(_find_holding(folder, newest_numbers, removed))
    kept = [number for number in newest_numbers if number not in gone]
    _mark_versions(folder, kept, live)
    _mark_runs(folder, live)
    if unfinished:
        _mark_tables(folder, tables, live)
    tables += _mark_extra_tables(folder, live, strictly=bool(removal), everything=unfinished)
    live.files -= removed.places.keys()
    return Collected(
        plan=_sweep(folder, live, sorted(gone), tables, purges=bool(removal)),
        live=live,
        kept=kept,
        gone=dict(sorted(gone.items())),
        swept=removal,
        broken=_list_broken_runs(folder, live) if removal else (),
        untouched=[name for name in folder.folders("") if name not in OWN] if removal else (),
    )


def _mark_current(
    folder: Folder, live: garbage.LiveFiles, *, without: Collection[str]
) -> tuple[list[str], bool]:
    """Mark the files of the current tables; return these, and whether rows are unfinished."""
    with open_present(folder).resolved(without=without) as (build, stages):
        live.mark_build(build)
    unfinished = any(counts.pending for _, counts in stages)
    return [planned.table_path for planned, _ in stages], unfinished


def _find_holding(
    folder: Folder, numbers: Sequence[int], removed: Removed
) -> Iterator[tuple[int, str]]:
    """Yield the versions with parts that hold removed images, each with the reason.

    Not the newest one, which is published without them.
    """
    for number in numbers[:-1]:
        if not removed.places.keys().isdisjoint(part_files(read_snapshot(folder, number))):
            yield number, HOLDS_REMOVED
            continue
        try:
            with open_version(folder, number).resolved() as (build, _):
                if garbage.find_removed(build):
                    yield number, HOLDS_REMOVED
        except PairwrightError as error:
            yield number, f"{UNCHECKED}: {error}"


def _mark_versions(folder: Folder, numbers: Sequence[int], live: garbage.LiveFiles) -> None:
    """Mark the files that versions name."""
    for number in numbers:
        live.files.update(part_files(read_snapshot(folder, number)))


def _mark_runs(folder: Folder, live: garbage.LiveFiles) -> None:
    """Mark the parts with the rows of unfinished trainings."""
    for parts in _frozen_parts(folder).values():
        live.files.update(parts)


def _mark_tables(folder: Folder, tables: Sequence[str], live: garbage.LiveFiles) -> None:
    """Mark all files of some tables: unfinished rows may be found in them once others are made."""
    for table, file in garbage.list_parts(folder):
        if table in tables:
            live.files.add(f"{table}/{file}")


def _mark_extra_tables(
    folder: Folder, live: garbage.LiveFiles, *, strictly: bool, everything: bool
) -> list[str]:
    """Mark the files of tables that trainings made; return those with live files."""
    extra = {table for table, _ in garbage.list_parts(folder)}
    tables: list[str] = []
    for table in sorted(extra):
        name = table.split("/")[1]
        if name in BY_NAME or name == "items":
            continue
        if everything:
            parts = [f"{table}/{file}" for file in folder.names(table)]
        else:
            parts = garbage.live_extra_parts(folder, table, live.keys, strictly=strictly)
        live.files.update(parts)
        if parts:
            tables.append(table)
    return tables


def _sweep(
    folder: Folder,
    live: garbage.LiveFiles,
    versions: Sequence[int],
    tables: Sequence[str],
    *,
    purges: bool,
) -> garbage.GarbagePlan:
    """Return the plan to delete everything that is not live."""
    files = [
        *garbage.dead_parts(folder, live.files),
        *garbage.left_work(folder),
        *_dead_excluded_files(folder),
    ]
    journals = list(garbage.dead_journals(folder, tables, everything=purges))
    return garbage.GarbagePlan(versions=versions, files=files, folders=journals)


def _dead_excluded_files(folder: Folder) -> Iterator[str]:
    """Yield the files of excluded sets that the dataset's profile no longer names."""
    sources = read_record(folder).profile.exclude.sources
    live = {make_key(source)[:16] for source in sources}
    for name in folder.folders("excluded"):
        is_ours = folder.exists(f"excluded/{name}/{RECORD}")
        if name not in live and is_ours:
            yield from garbage.files_below(folder, f"excluded/{name}")


def _list_runs(folder: Folder) -> list[Run]:
    if not folder.is_local:
        return []
    return [Run(path.parent) for path in sorted(Path(folder.path("runs")).glob("*/config.yaml"))]


def _list_broken_runs(folder: Folder, live: garbage.LiveFiles) -> list[str]:
    """Return the unfinished trainings some of whose rows are deleted."""
    frozen = _frozen_parts(folder)
    return [name for name, parts in frozen.items() if not parts <= live.files]


def _frozen_parts(folder: Folder) -> Mapping[str, set[str]]:
    """Return the parts of the dataset with the rows of each unfinished training, by its name."""
    frozen: dict[str, set[str]] = {}
    for run in _list_runs(folder):
        if not run.is_finished and run.rows.exists():
            paths = frozen_places(run.rows)
            frozen[run.folder.name] = {path for path in paths if path.startswith("tables/")}
    return frozen
