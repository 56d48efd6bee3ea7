"""Remove images from a dataset on request: an entry in a list, which the next build reads.

The tables do not change at once: the next build makes the parts that hold removed images again
without them. The garbage collection deletes files that neither a kept version nor the current state
needs, never while a build or a reader is running (an object store has no locks). Once a version
without the removed images is published, it also deletes versions that hold anything of them, and
all unused parts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.flows.versions.version import open_present, open_version
from pairwright.schemas.errors import ConfigError, PairwrightError
from pairwright.schemas.rows import ImageRow, make_key
from pairwright.tasks.store import garbage
from pairwright.tasks.store.build import Build, alone, read_record
from pairwright.tasks.store.decision_table import forget_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.lineage import count_rows, follow, keys_like
from pairwright.tasks.store.snapshot import (
    latest_snapshot,
    part_files,
    read_snapshot,
    snapshot_numbers,
    stream_live,
)
from pairwright.tasks.store.takedowns import (
    last_unswept,
    read_takedowns,
    removed_by,
    write_swept,
    write_takedown,
)
from pairwright.tasks.training.freeze_rows import frozen_places
from pairwright.tasks.training.runs import Run

KEY = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Removal of images: the entry, and its consequences."""

    number: int  # number of the entry; 0: nothing to do
    keys: list[str]
    before: list[str]
    unknown: list[
        str
    ]  # images that the newest version lacks; they stay out if the source has them later
    rows: dict[str, int]  # rows of the newest version that leave, by table


def remove_images(
    folder: Folder, texts: Sequence[str] = (), *, names: Sequence[str] = (), reason: str = ""
) -> Removal:
    """Add images to the dataset's list of removals, by keys, prefixes of keys, or names in the source."""
    with open_version(folder).settled() as (build, _):
        images = next(planned for planned in build.planned if planned.stage.writes is ImageRow)
        table = images.stage.name
        named: dict[str, list[str]] = {name: [] for name in names}
        for rows in stream_live(build, images, ["key", "name"]) if names else ():
            for row in rows.to_pylist():
                named.get(row["name"], []).append(row["key"])
        if missing := next((name for name, keys in named.items() if not keys), ""):
            raise ConfigError(f"--name {missing}: no image of the newest version has this name")
        given = [_find_key(build, table, text.strip().lower()) for text in texts]
        keys = list(dict.fromkeys([*given, *chain.from_iterable(named.values())]))
        before = removed_by(read_takedowns(folder))
        new = [key for key in keys if key not in before]
        seeds = [(table, key) for key in new if keys_like(build.ledger, table, key)]
        links = follow(build, seeds, "made of it")
        entry = write_takedown(folder, new, reason=reason) if new else None
        return Removal(
            number=entry.number if entry else 0,
            keys=new,
            before=[key for key in keys if key in before],
            unknown=[key for key in new if (table, key) not in seeds],
            rows=count_rows(links, seeds),
        )


def list_removed(folder: Folder) -> list[tuple[str, str, str]]:
    """Return the images that are removed now: time, key, reason."""
    read_record(folder)
    return sorted(
        (entry.when, key, entry.reason) for entry in read_takedowns(folder) for key in entry.keys
    )


def _find_key(build: Build, table: str, text: str) -> str:
    """Return the only key that begins so, or a whole key that the version lacks."""
    if not KEY.fullmatch(text):
        raise ConfigError(
            f"{text!r} is not a key (up to 32 of the digits 0-9 and a-f); give names with --name"
        )
    like = keys_like(build.ledger, table, text)
    if len(like) == 1 or (len(text) == 32 and not like):
        return like[0] if like else text
    several = f"several begin so: {', '.join(like[:5])}. Give more of it"
    raise ConfigError(f"{text}: {several if like else 'no image has a key that begins so'}")


OWN = ("tables", "snapshots", "takedowns", "decisions", "work", "journals", "excluded")
"""Folders of a dataset that are cleaned up; others are not touched."""


@dataclass(kw_only=True)
class Collected:
    """Outcome of the garbage collection: what was deleted, or would be."""

    plan: garbage.GarbagePlan
    needed: garbage.Needed
    kept: list[int]
    gone: dict[int, str]  # deleted versions, with reasons
    blocked: str = ""  # why removed images cannot be deleted yet
    swept: int = 0  # last removal that is gone from the tables completely; 0: none
    broken: Sequence[
        str
    ] = ()  # unfinished trainings that cannot continue, since rows of theirs are deleted
    beside: Sequence[str] = ()  # untouched folders that may hold parts of a removed image
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
        sweep = last_unswept(folder, read_takedowns(folder))
        for run in _runs(folder) if sweep and not dry_run else ():
            stack.enter_context(run.locked())
        found = _plan_garbage(folder, keep, sweep)
        if dry_run:
            return found
        for done, freed in enumerate(garbage.carry_out(folder, found.plan), 1):
            found.freed += freed
            if watch:
                watch(done, found.plan.steps)
        if found.swept:
            forget_decisions(folder, found.needed.names)
            write_swept(folder, found.swept)
    return found


def _plan_garbage(folder: Folder, keep: int | None, sweep: int) -> Collected:
    """Return what to delete; ``sweep`` is the last removal on request that may have left rows."""
    numbers = snapshot_numbers(folder)
    kept = numbers[-keep:] if keep else numbers
    gone = {number: "there are newer ones" for number in numbers if number not in kept}
    needed = garbage.Needed()
    with open_present(folder).settled() as (build, stages):
        needed.add(build)
        tables, owes = (
            [planned.table for planned, _ in stages],
            any(counts.pending for _, counts in stages),
        )
    newest, resume, blocked = latest_snapshot(folder), f"pairwright resume {folder.url}", ""
    if sweep and owes:
        blocked = f"rows are owed without the removed images. First run: {resume}"
    elif sweep and newest and newest.content.get("takedowns", 0) < sweep:
        before = f"version {newest.number}, the newest, is from before the removal"
        blocked = f"{before}. First publish one without the removed images: {resume}"
    sweeping = bool(sweep and not blocked)
    if sweeping:
        gone |= dict(_need_versions(folder, kept, needed))
    else:
        for number in kept:
            needed.files.update(part_files(read_snapshot(folder, number)))
        for _, places in _frozen(folder):
            needed.files.update(places)
        if (
            owes
        ):  # what is still made may find its rows again, of which it is not known yet that it will
            needed.files.update(
                f"{table}/{file}" for table, file in garbage.list_parts(folder) if table in tables
            )
    made = {
        table
        for table, _ in garbage.list_parts(folder)
        if table.split("/")[1] not in {*BY_NAME, "items"}
    }
    for table in sorted(made):  # by trainings
        parts = [f"{table}/{file}" for file in folder.names(table)]
        if sweeping or not owes:
            parts = garbage.needed_beside(folder, table, needed.names, strictly=sweeping)
        needed.files.update(parts)
        tables += [table] if parts else []
    excluded = {make_key(source)[:16] for source in read_record(folder).profile.exclude.sources}
    unnamed = (name for name in folder.folders("excluded") if name not in excluded)
    unnamed_sets = [
        file for name in unnamed for file in garbage.files_below(folder, f"excluded/{name}")
    ]
    plan = garbage.GarbagePlan(
        versions=sorted(gone),
        files=[
            *garbage.unneeded_parts(folder, needed.files),
            *garbage.left_work(folder),
            *unnamed_sets,
        ],
        folders=list(garbage.other_folders(folder, tables, everything=sweeping)),
    )
    return Collected(
        plan=plan,
        needed=needed,
        kept=[number for number in kept if number not in gone],
        gone=dict(sorted(gone.items())),
        blocked=blocked,
        swept=sweep if sweeping else 0,
        broken=[name for name, places in _frozen(folder) if not places.keys() <= needed.files]
        if sweeping
        else (),
        beside=[name for name in folder.folders("") if name not in OWN] if sweep else (),
    )


def _need_versions(
    folder: Folder, kept: Sequence[int], needed: garbage.Needed
) -> Iterator[tuple[int, str]]:
    """Add the parts of versions without removed images to the needed ones; yield other versions with reasons."""
    removed = list(removed_by(read_takedowns(folder)))
    for number in kept:
        try:
            with open_version(folder, number).settled() as (build, stages):
                own = [
                    planned.stage.name for planned, _ in stages if "items" in planned.stage.reads
                ]
                if any(garbage.holds_one(build.ledger, name, removed) for name in own):
                    yield number, "it holds removed images"
                elif number != kept[-1] and any(
                    build.ledger.has_stale(planned.stage.name) for planned, _ in stages
                ):
                    yield (
                        number,
                        "its parts also hold rows of other versions, which may be of removed images",
                    )
                else:
                    needed.add(build)
        except PairwrightError as error:
            if number == kept[-1]:
                raise
            yield number, f"it may hold removed images, which cannot be checked: {error}"


def _runs(folder: Folder) -> Iterator[Run]:
    places = sorted(Path(folder.path("runs")).glob("*/config.yaml")) if folder.is_local else []
    yield from (Run(place.parent) for place in places)


def _frozen(folder: Folder) -> Iterator[tuple[str, dict[str, set[int]]]]:
    for run in _runs(folder):
        if not run.is_finished and run.rows.exists():
            places = frozen_places(run.rows).items()
            yield (
                run.folder.name,
                {path: rows for path, rows in places if path.startswith("tables/")},
            )
