"""Status of a dataset: finished and owed rows, and how to continue, for people, scripts, notebooks
and Prefect.
"""

import html
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.pipeline import check_tables
from pairwright.flows.versions.version import open_present
from pairwright.schemas.arrow import R
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow, PairRow, RemovalRow
from pairwright.tasks.rejected import remove_elements
from pairwright.tasks.sources import read_items
from pairwright.tasks.store.build import ITEMS, Build, table_folders
from pairwright.tasks.store.executor import Outcome, ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import Verdict, read_verdict
from pairwright.tasks.store.ledger import DUPLICATE, Counts
from pairwright.tasks.store.manifest import MANIFEST, MARKER, find_damage
from pairwright.tasks.store.snapshot import find_live, latest_snapshot
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.verify import find_faults
from pairwright.tasks.training.runs import RETRIEVER, RUNS


def say_owed(counts: Sequence[Counts], dataset: str) -> Iterator[str]:
    """Yield a line for each stage that owes rows: how many, why, and the command that retries only those."""
    for count in counts:
        parts = (
            [f"{count.failed:,} rows failed: {say_reasons(count.failures)}"] if count.failed else []
        )
        parts += [f"{count.pending:,} rows not done"] if count.pending else []
        if parts:
            command = _retry_command(dataset, count.stage, {} if count.pending else count.failures)
            yield f"{count.stage}: {'; '.join(parts)}. Retry: {command}"


def say_shard(planned: Planned, outcome: Outcome) -> str:
    """Return the failed rows of a shard, the reasons, and the command that retries them; empty: none failed."""
    shard, result, stage = outcome.shard, outcome.result, planned.stage.name
    rows, failures = (
        shard.stop - shard.start,
        {} if isinstance(result, ShardFailed) else result.failures,
    )
    retry = _retry_command(shard.folder.url, stage, failures)
    if isinstance(result, ShardFailed):
        return f"{stage}: none of {rows:,} rows is done: {result.error}. Retry: {retry}"
    said = f"{stage}: {sum(failures.values()):,} of {rows:,} rows failed: {say_reasons(failures)}. Retry: {retry}"
    return said if failures else ""


def say_reasons(reasons: Mapping[str, int]) -> str:
    """Return reasons with their numbers, the most frequent first."""
    return ", ".join(
        f"{reason} ({number:,})"
        for reason, number in sorted(reasons.items(), key=lambda one: -one[1])
    )


def _retry_command(dataset: str, stage: str, reasons: Mapping[str, int]) -> str:
    words = ["pairwright", "resume", dataset, "--stage", stage]
    return shlex.join([*words, "--reason", *reasons] if len(reasons) == 1 else words)


def say_held(verdict: Verdict | None, current: int, dataset: str) -> Iterator[str]:
    """Yield why the last build was held back, and what to do; nothing if it was not."""
    if verdict is None or not verdict.held:
        return
    stays = f"version {current} stays current" if current else "there is no version yet"
    early = "the build ended early" if verdict.stopped else "it does not pass its profile's gates"
    yield f"No version was published, for {early}; {stays}:"
    yield from (f"  {why}" for why in verdict.why)
    if not verdict.stopped:
        place = shlex.quote(dataset)
        yield (
            f"See why: pairwright status {place}. Publish it all the same: pairwright publish {place}. Or with another "
            f"bound from now on: pairwright resume {place} --set gates.{verdict.failed[0].gate}=..."
        )


@dataclass(frozen=True, kw_only=True)
class Status:
    """Status of a dataset: per stage, rows done, dropped, failed and owed, with reasons."""

    dataset: str
    version: int  # the newest version's number; 0: there is none
    counts: Sequence[Counts]
    held: Sequence[str]  # why the last build was not published, and what to do; empty: it was
    damaged: Sequence[str] = ()  # a message for each damaged file, if that was checked

    @property
    def owed(self) -> int:
        """Return the number of owed rows."""
        return sum(count.failed + count.pending for count in self.counts)

    @property
    def owing(self) -> list[str]:
        """Return a line for each stage that owes rows: how many, why, and the command that retries only those."""
        return list(say_owed(self.counts, self.dataset))

    def as_json(self) -> dict[str, Any]:
        """Return what ``pairwright status --json`` prints."""
        stages = [count.as_json() for count in self.counts]
        return {
            "dataset": self.dataset,
            "snapshot": self.version,
            "stages": stages,
            "held": list(self.held),
        }

    def __repr__(self) -> str:
        heads, *rows = stage_table(self.counts)
        lines = [
            ", ".join(f"{head} {cell}" for head, cell in zip(heads, row, strict=True) if cell)
            for row in rows
        ]
        return "\n".join([_title(self.dataset, self.version), *lines, *self.owing, *self.held])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in (*self.owing, *self.held))
        return show_stages(self.dataset, self.version, self.counts) + notes


def look_at_status(folder: Folder, *, verify: bool = False) -> Status:
    """Count every stage of a dataset as it is now, without running anything."""
    damaged = list(_verify(folder)) if verify else []
    try:
        present, snapshot = open_present(folder), latest_snapshot(folder)
        number = snapshot.number if snapshot else 0
        held = list(say_held(read_verdict(folder), number, folder.url))
        stated = present.stated_counts(snapshot) if snapshot and not verify else None
        counts = present.counts() if stated is None else stated
    except StoreError:
        if not damaged:
            raise
        number, counts, held = 0, [], []  # unknown; the messages say why
    return Status(dataset=folder.url, version=number, counts=counts, held=held, damaged=damaged)


def _verify(folder: Folder) -> Iterator[str]:
    """Yield damaged or missing files of a dataset, its excluded sets, and its runs."""
    try:
        present = open_present(folder)
        lists, tables = (
            present.items,
            [ITEMS, *(planned.table for planned in present.stages)],
        )
    except StoreError:
        lists, tables = (), [*table_folders(folder)]
    yield from find_faults(folder, tables, lists)
    for name in folder.folders("excluded"):
        yield from _verify(Folder(f"{folder.url.rstrip('/')}/excluded/{name}"))
    yield from verify_copies(folder.url, f"{RUNS}/*/") or ()


def verify_copies(url: str, below: str = "") -> list[str] | None:
    """Return the damaged files of an export, a model or a run in a folder; ``None``: it has no manifest."""
    folder, inside = Folder(url), ("checkpoint", "checkpoints/checkpoint-*", RETRIEVER)
    patterns = (
        (MARKER, MANIFEST, *(f"{name}/{MANIFEST}" for name in inside)) if folder.is_local else ()
    )
    found = sorted(
        path for pattern in patterns for path in Path(folder.path("")).glob(below + pattern)
    )
    return (
        [damage for path in found if (damage := find_damage(path.parent, path.name))]
        if found
        else None
    )


def stage_table(counts: Sequence[Counts], seconds: Sequence[float] = ()) -> list[list[str]]:
    """Return the counts of each stage with input: the heads, then a line per stage."""
    table = [
        [
            "stage",
            "in",
            "ok",
            "dropped",
            "failed",
            "pending",
            "rows",
            *(["seconds"] if seconds else []),
        ]
    ]
    table[0].append("most frequent reason")
    for count, spent in zip_longest(counts, seconds):
        if count.of:
            numbers = (count.of, count.ok, count.dropped, count.failed, count.pending, count.rows)
            reason = next((f"{text} ({number:,})" for text, number in count.reasons.items()), "")
            own = [] if spent is None else [f"{spent:.1f}"]
            table.append([count.stage, *(f"{number:,}" for number in numbers), *own, reason])
    return table


def show_stages(dataset: str, version: int, counts: Sequence[Counts]) -> str:
    """Return the table of the stages as HTML."""
    heads, *rows = ([html.escape(cell) for cell in line] for line in stage_table(counts))
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    title = html.escape(_title(dataset, version))
    return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _title(dataset: str, version: int) -> str:
    return f"{dataset}, version {version}" if version else f"{dataset}, not yet a version"


def list_refused(folder: Folder, table: str) -> Iterator[tuple[str, str, str]]:
    """Yield status, reason and detail of each input that a table refused, with the names of its images.

    The status is "dropped", "failed", or "kept": a row that exists, but is not or less used for
    this reason.
    """
    check_tables([table])
    present = open_present(folder)
    planned = next((stage for stage in present.planned if stage.stage.name == table), None)
    if planned is None:
        return
    with present.settled() as (build, _):
        refused, names = list(build.refused(planned)), dict[str, tuple[str, ...]]()
        if "items" not in planned.stage.reads:  # sources tables have the names in their details
            names = _names_of({subject for *_, subject in refused}, build, present.planned)
        elif planned.stage.writes is ImageRow:
            for name, other in build.duplicates(planned, "name"):
                yield "dropped", DUPLICATE, f"{name}: the same image as {other}"
    told: dict[tuple[str, str, str], None] = {}  # several rows may be about one image
    for status, reason, detail, about in refused:
        for name in reversed(names.get(about, ())):
            if not f"{detail}: ".startswith(f"{name}: "):
                detail = f"{name}: {detail}".removesuffix(": ")
        told[status, reason, detail] = None
    yield from told


def _names_of(
    subjects: set[str], build: Build, stages: Sequence[Planned]
) -> dict[str, tuple[str, ...]]:
    """Return the names of what rows are about: images, both images of pairs, images and tags of removals."""
    tables = {stage.stage.name: stage for stage in stages}

    def find(table: str, kind: type[R], about: set[str], *big: str) -> list[R]:
        return (
            list(find_live(build, tables[table], kind, subjects=about, without=big))
            if table in tables
            else []
        )

    known = find("pairs", PairRow, subjects)
    elements = find(remove_elements.STAGE.name, RemovalRow, subjects, "patch", "mask")
    keys = subjects.union(
        *((pair.first, pair.second) for pair in known), (one.image_key for one in elements)
    )
    files = {
        row.key: row.name
        for row in find(read_items.IMAGES.name, ImageRow, keys, "image", "graph", "captions")
    }
    return {
        **{key: (name,) for key, name in files.items()},
        **{
            pair.key: (" | ".join(files.get(key, key) for key in (pair.first, pair.second)),)
            for pair in known
        },
        **{one.subject: (files.get(one.image_key, one.image_key), one.tag) for one in elements},
    }
