"""Delete the files of a dataset that neither a kept version nor the current state needs.

Mark and sweep: the files of the current tables, of kept versions and of unfinished trainings are
live; the other files of the tables are deleted. Never while a build or a reader is running (an
object store has no locks). Once a version without the removed images is published, versions that
hold anything of them are deleted as well, and all unused parts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.errors import PairwrightError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store import garbage
from pairwright.tasks.store.decision_table import forget_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD, Build, alone, read_record
from pairwright.tasks.store.snapshot import (
    latest_snapshot,
    part_files,
    read_snapshot,
    snapshot_numbers,
)
from pairwright.tasks.store.stage import Planned
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
SHARES_PARTS = "its parts also hold rows of other versions, which may be of removed images"
UNCHECKED = "it may hold removed images, which cannot be checked"


@dataclass(kw_only=True)
class Collected:
    """Outcome of the garbage collection: what was deleted, or would be."""

    plan: garbage.GarbagePlan
    live: garbage.LiveFiles
    kept: list[int]
    gone: dict[int, str]  # deleted versions, with reasons
    blocked: str = ""  # why removed images cannot be deleted yet
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
        collected = _plan_collection(folder, keep, removal)
        if dry_run:
            return collected
        for done, freed in enumerate(garbage.carry_out(folder, collected.plan), 1):
            collected.freed += freed
            if watch:
                watch(done, collected.plan.step_count)
        if collected.swept:
            forget_decisions(folder, collected.live.keys)
            write_swept(folder, collected.swept)
    return collected


def _plan_collection(folder: Folder, keep: int | None, removal: int) -> Collected:
    """Return what to delete; ``removal`` is the last removal on request that may have left rows."""
    numbers = snapshot_numbers(folder)
    newest_numbers = numbers[-keep:] if keep else numbers
    gone = {number: OUTDATED for number in numbers if number not in newest_numbers}
    live = garbage.LiveFiles()
    tables, unfinished = _mark_current(folder, live)
    blocked = _say_blocked(folder, removal, unfinished=unfinished) if removal else ""
    purges = bool(removal) and not blocked
    if purges:
        gone.update(_mark_clean_versions(folder, newest_numbers, live))
    else:
        _mark_versions(folder, newest_numbers, live)
        _mark_runs(folder, live)
    if unfinished and not purges:
        _mark_tables(folder, tables, live)
    tables += _mark_extra_tables(
        folder, live, strictly=purges, everything=unfinished and not purges
    )
    return Collected(
        plan=_sweep(folder, live, sorted(gone), tables, purges=purges),
        live=live,
        kept=[number for number in newest_numbers if number not in gone],
        gone=dict(sorted(gone.items())),
        blocked=blocked,
        swept=removal if purges else 0,
        broken=_list_broken_runs(folder, live) if purges else (),
        untouched=[name for name in folder.folders("") if name not in OWN] if removal else (),
    )


def _mark_current(folder: Folder, live: garbage.LiveFiles) -> tuple[list[str], bool]:
    """Mark the files of the current tables; return these, and whether rows are unfinished."""
    with open_present(folder).resolved() as (build, stages):
        live.mark_build(build)
    unfinished = any(counts.pending for _, counts in stages)
    return [planned.table_path for planned, _ in stages], unfinished


def _say_blocked(folder: Folder, removal: int, *, unfinished: bool) -> str:
    """Return why files of removed images cannot be deleted yet, and what to do; empty: they can."""
    resume = f"pairwright resume {folder.url}"
    if unfinished:
        return f"rows are unfinished without the removed images. First run: {resume}"
    newest = latest_snapshot(folder)
    if newest and newest.content.get("takedowns", 0) < removal:
        return (
            f"version {newest.number}, the newest, is from before the removal. First publish one "
            f"without the removed images: {resume}"
        )
    return ""


def _mark_clean_versions(
    folder: Folder, numbers: Sequence[int], live: garbage.LiveFiles
) -> Iterator[tuple[int, str]]:
    """Mark the files of versions without removed images; yield the other versions with reasons."""
    removed = list(removed_by(read_takedowns(folder)))
    for number in numbers:
        is_newest = number == numbers[-1]
        try:
            with open_version(folder, number).resolved() as (build, stages):
                planned = [stage for stage, _ in stages]
                if _holds_removed(build, planned, removed):
                    yield number, HOLDS_REMOVED
                elif not is_newest and _has_stale_rows(build, planned):
                    yield number, SHARES_PARTS
                else:
                    live.mark_build(build)
        except PairwrightError as error:
            if is_newest:
                raise
            yield number, f"{UNCHECKED}: {error}"


def _holds_removed(build: Build, planned: Sequence[Planned], removed: Sequence[str]) -> bool:
    """Return whether a version has rows of removed images."""
    readers = [stage.stage.name for stage in planned if stage.reads_source]
    return any(garbage.holds_one(build.ledger, name, removed) for name in readers)


def _has_stale_rows(build: Build, planned: Sequence[Planned]) -> bool:
    """Return whether the parts of a version hold rows that it does not count."""
    return any(build.ledger.has_stale(stage.stage.name) for stage in planned)


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
