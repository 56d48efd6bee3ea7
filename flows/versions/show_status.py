"""Status of a dataset: finished and unfinished rows, and how to continue.

For people, scripts, notebooks and Prefect.
"""

import html
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.pipeline import check_tables
from pairwright.flows.versions.count_answers import AnswerCounts, count_answers
from pairwright.flows.versions.version import Version, open_present
from pairwright.schemas.arrow import R
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ImageRow, PairRow, RemovalRow
from pairwright.tasks.rejected import remove_elements
from pairwright.tasks.sources import read_items
from pairwright.tasks.store.executor import Outcome, ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import Verdict, read_verdict
from pairwright.tasks.store.ledger import DUPLICATE, Counts
from pairwright.tasks.store.manifest import MANIFEST, MARKER, RECORD, find_damage, list_changed
from pairwright.tasks.store.open_tables import ITEMS, Build, table_folders
from pairwright.tasks.store.snapshot import find_live, latest_snapshot, stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.store.verify import find_faults
from pairwright.tasks.training.runs import RETRIEVER, RUNS


def say_unfinished(counts: Sequence[Counts], dataset: str) -> Iterator[str]:
    """Yield a line for each unfinished stage.

    How many, why, and the command that retries only those.
    """
    for count in counts:
        problems: list[str] = []
        if count.failed:
            problems.append(f"{count.failed:,} rows failed: {say_reasons(count.failures)}")
        if count.pending:
            problems.append(f"{count.pending:,} rows not done")
        if problems:
            retried_reasons = {} if count.pending else count.failures
            command = _retry_command(dataset, count.stage, retried_reasons)
            yield f"{count.stage}: {'; '.join(problems)}. Retry: {command}"


def say_shard(planned: Planned, outcome: Outcome) -> str:
    """Return the failed rows of a shard, the reasons, and the command that retries them.

    Empty: none failed.
    """
    shard = outcome.shard
    result = outcome.result
    stage = planned.stage.name
    rows = shard.stop - shard.start
    if isinstance(result, ShardFailed):
        retry = _retry_command(shard.folder.url, stage, {})
        return f"{stage}: none of {rows:,} rows is done: {result.error}. Retry: {retry}"
    if not result.failures:
        return ""
    failed = sum(result.failures.values())
    reasons = say_reasons(result.failures)
    retry = _retry_command(shard.folder.url, stage, result.failures)
    return f"{stage}: {failed:,} of {rows:,} rows failed: {reasons}. Retry: {retry}"


def say_reasons(reasons: Mapping[str, int]) -> str:
    """Return reasons with their numbers, the most frequent first."""
    most_frequent = sorted(reasons.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} ({number:,})" for reason, number in most_frequent)


def _retry_command(dataset: str, stage: str, reasons: Mapping[str, int]) -> str:
    command = ["pairwright", "resume", dataset, "--stage", stage]
    if len(reasons) == 1:
        command += ["--reason", *reasons]
    return shlex.join(command)


def say_held(verdict: Verdict | None, current: int, dataset: str) -> Iterator[str]:
    """Yield each failed gate of the last build, and what to do.

    Nothing if a version was published.
    """
    if verdict is None or not verdict.held:
        return
    if current:
        stays = f"version {current} stays current"
    else:
        stays = "there is no version yet"
    if verdict.stopped:
        cause = "the build ended early"
    else:
        cause = "it does not pass its profile's gates"
    yield f"No version was published, for {cause}; {stays}:"
    for why in verdict.why:
        yield f"  {why}"
    if not verdict.stopped:
        quoted = shlex.quote(dataset)
        gate = verdict.failed[0].gate
        yield (
            f"See why: pairwright status {quoted}. Publish it all the same: pairwright publish "
            f"{quoted}. Or with another bound from now on: pairwright resume {quoted} --set "
            f"gates.{gate}=..."
        )


@dataclass(frozen=True, kw_only=True)
class Status:
    """Status of a dataset: per stage, rows done, dropped, failed and pending, with reasons."""

    dataset: str
    version: int  # the newest version's number; 0: there is none
    counts: Sequence[Counts]
    held: Sequence[str]  # why the last build was not published, and what to do; empty: it was
    damaged: Sequence[str] = ()  # a message for each damaged file, if that was checked
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    """Images by the kind of their source, of a dataset of several."""
    answers: Sequence[AnswerCounts] = ()  # what was taken off served models' answers, by stage

    @property
    def unfinished(self) -> int:
        """Return the number of unfinished rows."""
        return sum(count.failed + count.pending for count in self.counts)

    @property
    def unfinished_lines(self) -> list[str]:
        """Return a line for each unfinished stage.

        How many, why, and the command that retries only those.
        """
        return list(say_unfinished(self.counts, self.dataset))

    def as_json(self) -> dict[str, Any]:
        """Return what ``pairwright status --json`` prints."""
        stages = [count.as_json() for count in self.counts]
        return {
            "dataset": self.dataset,
            "snapshot": self.version,
            "stages": stages,
            "held": list(self.held),
            "sources": dict(self.sources),
            "answers": [count.as_json() for count in self.answers],
        }

    @property
    def source_lines(self) -> list[str]:
        """Return the line that counts images by source; none of a single source."""
        if not self.sources:
            return []
        counts = ", ".join(f"{kind} {count:,}" for kind, count in self.sources.items())
        return [f"images by source: {counts}"]

    @property
    def note_lines(self) -> list[str]:
        """Return the lines below the table of stages."""
        answers = map(str, self.answers)
        return [*self.source_lines, *answers, *self.unfinished_lines, *self.held]

    def __repr__(self) -> str:
        heads, *rows = stage_table(self.counts)
        lines = [_title(self.dataset, self.version)]
        for row in rows:
            cells = zip(heads, row, strict=True)
            lines.append(", ".join(f"{head} {cell}" for head, cell in cells if cell))
        return "\n".join([*lines, *self.note_lines])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self.note_lines)
        return show_stages(self.dataset, self.version, self.counts) + notes


def look_at_status(folder: Folder, *, verify: bool = False) -> Status:
    """Count every stage of a dataset as it is now, without running anything."""
    damaged = list(_verify(folder)) if verify else []
    try:
        present = open_present(folder)
        snapshot = latest_snapshot(folder)
        number = snapshot.number if snapshot else 0
        held = list(say_held(read_verdict(folder), number, folder.url))
        stated = present.stated_counts(snapshot) if snapshot and not verify else None
        counts = present.stage_counts() if stated is None else stated
        sources = _count_sources(present) if present.profile.sources else {}
        answers = count_answers(folder, present.stages)
    except StoreError:
        if not damaged:
            raise
        # unknown; the messages say why
        return Status(dataset=folder.url, version=0, counts=[], held=[], damaged=damaged)
    return Status(
        dataset=folder.url,
        version=number,
        counts=counts,
        held=held,
        damaged=damaged,
        sources=sources,
        answers=answers,
    )


def _count_sources(version: Version) -> dict[str, int]:
    """Return the number of live images by the kind of their source."""
    images = version.find_stage(read_items.IMAGES.name)
    counts: Counter[str] = Counter()
    with version.resolved() as (build, _):
        for table in stream_live(build, images, ["source"]):
            counts.update(table.column("source").to_pylist())
    return dict(sorted(counts.items()))


def _verify(folder: Folder) -> Iterator[str]:
    """Yield damaged or missing files of a dataset, its excluded sets, and its runs."""
    try:
        present = open_present(folder)
        lists = present.items
        tables = [ITEMS, *(planned.table_path for planned in present.stages)]
    except StoreError:
        lists = ()
        tables = list(table_folders(folder))
    yield from find_faults(folder, tables, lists)
    for name in folder.folders("excluded"):
        yield from _verify(Folder(f"{folder.url.rstrip('/')}/excluded/{name}"))
    yield from verify_copies(folder.url, f"{RUNS}/*/") or ()


def verify_copies(url: str, below: str = "") -> list[str] | None:
    """Return the damaged files of an export, a model or a run in a folder.

    ``None``: it has no manifest.
    """
    folder = Folder(url)
    if not folder.is_local:
        return None
    inner = ("checkpoint", "checkpoints/checkpoint-*", RETRIEVER)
    patterns = [MARKER, MANIFEST, *(f"{name}/{MANIFEST}" for name in inner)]
    manifests: list[Path] = []
    for pattern in patterns:
        manifests += Path(folder.path("")).glob(below + pattern)
    records = sorted(Path(folder.path("")).glob(f"{below}{RECORD}"))
    if not manifests and not records:
        return None
    found = [find_damage(path.parent, path.name) for path in sorted(manifests)]
    for path in records:
        found += list_changed(path.parent)
    return [damage for damage in found if damage]


def stage_table(counts: Sequence[Counts], seconds: Sequence[float] = ()) -> list[list[str]]:
    """Return the counts of each stage with input: the heads, then a line per stage."""
    heads = ["stage", "in", "ok", "dropped", "failed", "pending", "rows"]
    if seconds:
        heads.append("seconds")
    table = [[*heads, "most frequent reason"]]
    for count, spent in zip_longest(counts, seconds):
        if not count.of:
            continue
        numbers = (count.of, count.ok, count.dropped, count.failed, count.pending, count.rows)
        cells = [count.stage, *(f"{number:,}" for number in numbers)]
        if spent is not None:
            cells.append(f"{spent:.1f}")
        reasons = [f"{reason} ({number:,})" for reason, number in count.reasons.items()]
        table.append([*cells, reasons[0] if reasons else ""])
    return table


def show_stages(dataset: str, version: int, counts: Sequence[Counts]) -> str:
    """Return the table of the stages as HTML."""
    heads, *rows = stage_table(counts)
    head = _html_cells("th", heads)
    lines = "".join(f"<tr>{_html_cells('td', row)}</tr>" for row in rows)
    title = html.escape(_title(dataset, version))
    return f"<p>{title}</p><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _html_cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def _title(dataset: str, version: int) -> str:
    return f"{dataset}, version {version}" if version else f"{dataset}, not yet a version"


def list_refused(folder: Folder, table: str) -> Iterator[tuple[str, str, str]]:
    """Yield status, reason and detail of each refused input, with image names.

    The status is "dropped", "failed", or "kept": a row that exists, but is not or less used for
    this reason.
    """
    check_tables([table])
    present = open_present(folder)
    planned = next((stage for stage in present.planned if stage.stage.name == table), None)
    if planned is None:
        return
    names: dict[str, tuple[str, ...]] = {}
    with present.resolved() as (build, _):
        refused = list(build.refused(planned))
        if not planned.reads_source:  # sources tables have the names in their details
            names = _name_subjects({subject for *_, subject in refused}, build, present.planned)
        elif planned.stage.writes is ImageRow:
            for name, original in build.duplicates(planned, "name"):
                yield "dropped", DUPLICATE, f"{name}: the same image as {original}"
    # several rows may be about one image
    distinct: dict[tuple[str, str, str], None] = {}
    for status, reason, detail, subject in refused:
        detail = _add_names(detail, names.get(subject, ()))
        distinct[status, reason, detail] = None
    yield from distinct


def _add_names(detail: str, names: Sequence[str]) -> str:
    """Return a detail that begins with some names."""
    for name in reversed(names):
        if not f"{detail}: ".startswith(f"{name}: "):
            detail = f"{name}: {detail}".removesuffix(": ")
    return detail


def _name_subjects(
    subjects: set[str], build: Build, stages: Sequence[Planned]
) -> dict[str, tuple[str, ...]]:
    """Return the names of the subjects of rows.

    Images, both images of pairs, images and tags of removals.
    """
    tables = {stage.stage.name: stage for stage in stages}

    def find_about(table: str, row_type: type[R], keys: set[str], *without: str) -> list[R]:
        if table not in tables:
            return []
        return list(find_live(build, tables[table], row_type, subjects=keys, without=without))

    pairs = find_about("pairs", PairRow, subjects)
    elements = find_about(remove_elements.STAGE.name, RemovalRow, subjects, "patch", "mask")
    image_keys = set(subjects)
    for pair in pairs:
        image_keys |= {pair.first, pair.second}
    image_keys |= {element.image_key for element in elements}
    images = find_about(read_items.IMAGES.name, ImageRow, image_keys, "image", "graph", "captions")
    files = {image.key: image.name for image in images}
    names: dict[str, tuple[str, ...]] = {key: (name,) for key, name in files.items()}
    for pair in pairs:
        both = (files.get(key, key) for key in (pair.first, pair.second))
        names[pair.key] = (" | ".join(both),)
    for element in elements:
        image_name = files.get(element.image_key, element.image_key)
        names[element.subject] = (image_name, element.tag)
    return names
