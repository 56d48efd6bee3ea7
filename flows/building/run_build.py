"""Build a dataset: list the source, run each stage on its unfinished rows, publish a version.

Shards run in this process' workers or, if a Prefect server is configured, as task runs
(``flows.prefect.build_dataset``).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any

from pairwright.flows.building import find_models
from pairwright.flows.building.make_request import ROWLESS, Request
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.pipeline.read_prompts import say_changed_prompts
from pairwright.flows.versions.count_answers import AnswerCounts, count_answers
from pairwright.flows.versions.show_status import Status, say_held
from pairwright.flows.versions.version import Version, now, open_present, publish_version
from pairwright.schemas.bounds import BudgetConfig, GatesConfig
from pairwright.schemas.config import (
    ExcludeConfig,
    Profile,
    ReadingConfig,
    RobustnessConfig,
    add_findings,
)
from pairwright.schemas.errors import ConfigError, SourceError, StoreError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import say_changes
from pairwright.tasks.mining import embed_images
from pairwright.tasks.mining.admit_images import write_references
from pairwright.tasks.serving.launch import Servers
from pairwright.tasks.sources import read_items
from pairwright.tasks.sources.measure_source import measure_source
from pairwright.tasks.sources.sources import list_all
from pairwright.tasks.store.budget import Budget
from pairwright.tasks.store.executor import Executor, Outcome, ShardFailed
from pairwright.tasks.store.files import FULL, Folder
from pairwright.tasks.store.gates import Verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import (
    Build,
    Snapshot,
    in_use,
    read_record,
    write_items,
    write_record,
)
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
MAX_CHANGES = 8  # settings whose change is logged at the start of a build
FOUND = tuple(f"found.{name}." for name in Profile.model_fields if name != "models")
OWN_NOTES = ("about", *ROWLESS, *FOUND)
"""Fields that change no row, and findings of a build other than served models."""
STEPS = {
    "sources": "mine-pairs",
    "mining": "mine-pairs",
    "captioning": "write-texts",
    "rejected": "reject-images",
    "preferences": "build-preferences",
}  # step of a build for each group of stages


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a build, with its outcome."""

    counts: list[Counts]
    seconds: list[float]
    failures: list[ShardFailed]
    snapshot: Snapshot | None  # newest version; ``None`` if the first build was held back
    verdict: Verdict
    answers: Sequence[AnswerCounts] = ()  # what was taken off served models' answers, by stage

    @property
    def stopped(self) -> str:
        """Return why it ended early, such as a used-up budget or a full disk; empty: it did not."""
        return self.verdict.stopped

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is unfinished any more, and a version was published."""
        return not self.failures and self.verdict.complete and not self.verdict.held

    def status(self, dataset: str) -> Status:
        """Return the status of a dataset after it."""
        version = self.snapshot.number if self.snapshot else 0
        held = list(say_held(self.verdict, version, dataset))
        return Status(
            dataset=dataset,
            version=version,
            counts=self.counts,
            held=held,
            answers=self.answers,
        )


def run_build(request: Request, executor: Executor) -> Report:
    """Do everything that is unfinished, and publish a version if the profile's gates hold."""
    version = request.version
    folder = version.folder
    _log_changes(version)
    if version.pipeline.caveat:
        log.warning("%s", version.pipeline.caveat)
    began = now()
    source = version.profile.source_config
    rescans = _earlier_rescans(folder) + request.rescan
    version = replace(version, rescans=rescans)
    listed = list_all(source, version.limit, rescans=rescans)
    first = list(islice(listed, 1))  # a source that cannot be listed leaves no folder
    with in_use(folder):  # so that no clean-up deletes the listing
        items = write_items(folder, chain(first, listed))
        version = replace(version, items=items)
        earlier = _earlier_ranges(version)
        write_record(folder, version.record)  # a build killed from here on can be resumed
        version = _measure_ranges(version, earlier)
        version = _embed_excluded(version, executor)
        write_record(folder, version.record)
        return _run_steps(replace(request, version=version), executor, began)


def _earlier_rescans(folder: Folder) -> int:
    """Return how often the source was read again so far; 0 before the first build."""
    with suppress(ConfigError, StoreError):
        return read_record(folder).rescans
    return 0


def _log_changes(version: Version) -> None:
    """Log the settings that have changed since the last build of the dataset."""
    folder = version.folder
    with suppress(ConfigError, StoreError):  # no record yet, or one that this build replaces
        before = read_record(folder).profile.model_dump(mode="json")
        after = version.profile.model_dump(mode="json")
        changes = list(say_changes(before, after, free=OWN_NOTES))
        changes += say_changed_prompts(before, after)
        for change in changes[:MAX_CHANGES]:
            log.info("%s: changed since the last build of this dataset: %s", folder.url, change)
        more = len(changes) - MAX_CHANGES
        if more > 0:
            log.info(
                "%s: and %d more settings, which `pairwright versions` lists afterwards",
                folder.url,
                more,
            )


@dataclass(kw_only=True)
class StageRuns:
    """Runs of the stages of a build: counts, times and failed shards so far."""

    request: Request
    executor: Executor
    build: Build
    servers: Servers
    budget: Budget
    counts: list[Counts] = field(default_factory=list[Counts])
    seconds: list[float] = field(default_factory=list[float])
    failures: list[ShardFailed] = field(default_factory=list[ShardFailed])

    def run_stages(self, stages: Sequence[Planned]) -> Sequence[Counts]:
        """Run some stages, after the earlier ones; return their counts."""
        for planned in stages:
            start = time.monotonic()
            self.counts.append(self._run_stage(planned))
            self.seconds.append(time.monotonic() - start)
        return self.counts[-len(stages) :]

    def _run_stage(self, planned: Planned) -> Counts:
        if not planned.is_on:
            return self.build.resolve(planned)
        counts, failures = run_stage(
            self.build, planned, self.executor, request=self.request, submit=self._submit
        )
        self.failures.extend(failures)
        return counts

    def _submit(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Run shards while the budget lasts, with a server for their stage.

        None if it waits for a table.
        """
        waits_for = find_models.waits_for(planned, self.counts)
        profile = self.request.version.profile
        for batch in self.budget.rounds(planned, shards):
            if not batch:
                continue
            if waits_for:
                log.warning(
                    "%s waits for %s, which still has unfinished rows",
                    planned.stage.name,
                    waits_for,
                )
                continue
            served = find_models.start_server(self.servers, profile, planned)
            yield from self.executor.submit(served, batch)
            end = self.servers.describe_end()
            if end:
                log.error("%s: %s", planned.stage.name, end)

    @property
    def stopped(self) -> str:
        """Return why the build ended early: a used-up budget, or a full disk; empty: it did not."""
        if self.budget.stopped:
            return self.budget.stopped
        for failure in self.failures:
            if FULL in failure.error:
                return failure.error
        return ""


def _run_steps(request: Request, executor: Executor, began: str) -> Report:
    """Do what is unfinished of the listed items, step by step, and publish a version."""
    version = request.version
    run = version.profile.run
    budget = Budget(version.folder, run.budget, workers=run.workers or count_cores())
    with (
        version.opened(with_off=True) as build,
        find_models.servers_of(version.folder) as servers,
    ):
        runs = StageRuns(
            request=request, executor=executor, build=build, servers=servers, budget=budget
        )
        for step, stages in groupby(version.stages, lambda planned: STEPS[planned.stage.group]):
            executor.run_step(step, partial(runs.run_stages, list(stages)))
        done = list(zip(version.stages, runs.counts, strict=True))
        snapshot, verdict = publish_version(
            build, done, version=version, began=began, stopped=runs.stopped
        )
    return Report(
        counts=runs.counts,
        seconds=runs.seconds,
        failures=runs.failures,
        snapshot=snapshot,
        verdict=verdict,
        answers=count_answers(version.folder, version.stages),
    )


def _earlier_ranges(version: Version) -> tuple[str, ...] | None:
    """Return the ranges of values that an earlier build measured; ``None``: measure them.

    Ranges of other settings do not count. A source without deep images is measured again when it
    lists other items.
    """
    try:
        record = read_record(version.folder)
    except (ConfigError, StoreError):  # the first build, or a record that this one replaces
        return None
    before = record.profile.resolved.images
    images = version.profile.images
    if (before.range, before.bands) != (images.range, images.bands):
        return None
    is_unchanged = record.items == tuple(version.items)
    return before.measured if before.measured or is_unchanged else None


def _measure_ranges(version: Version, earlier: tuple[str, ...] | None) -> Version:
    """Return the version with the ranges of values of the source's images of more than 8 bits."""
    measured = earlier
    if measured is None:
        measured = measure_source(version.folder, version.items, version.profile.source_config)
    if not measured:
        return version
    log.info(
        "%s: images of more than 8 bits are shown in this range: %s",
        version.folder.url,
        "; ".join(measured),
    )
    profile = add_findings(version.profile, {"images.measured": measured})
    return replace(version, pipeline=Pipeline(profile, version.pipeline.until))


def _embed_excluded(version: Version, executor: Executor) -> Version:
    """Embed the images to exclude; return the version with their files in its profile."""
    sources = version.profile.exclude.sources
    if not sources:
        return version
    files = tuple(_embed_source(version, source, executor) for source in sources)
    marks = tuple(file.rpartition("/")[2] for file in files)
    profile = add_findings(version.profile, {"exclude.files": files, "exclude.marks": marks})
    return replace(version, pipeline=Pipeline(profile, version.pipeline.until))


def _embed_source(version: Version, source: str, executor: Executor) -> str:
    """Embed a source of images to exclude, as a small dataset below this one.

    Return the vectors' file. Such a source is read completely: ``reading`` applies to the dataset's
    own source.
    """
    parent = version.folder.url.rstrip("/")
    folder = Folder(f"{parent}/excluded/{make_key(source)[:16]}")
    changed: dict[str, Any] = {
        "source": source,
        "exclude": ExcludeConfig(),
        "reading": ReadingConfig(),
        "gates": GatesConfig(),
        "robustness": RobustnessConfig(),
        "run": version.profile.run.model_copy(update={"budget": BudgetConfig()}),
    }
    resolved = add_findings(version.profile, {"exclude.files": (), "exclude.marks": ()})
    profile = resolved.model_copy(update=changed)
    excluded = Version(folder=folder, pipeline=Pipeline(profile, embed_images.STAGE.name))
    if not run_build(Request(version=excluded), executor).is_complete:
        raise SourceError(
            f"{source}: not all images to exclude could be read: build again, or leave it out"
        )
    present = open_present(folder)
    embeddings = present.find_stage(embed_images.STAGE.name)
    images = present.find_stage(read_items.IMAGES.name)
    with present.resolved() as (build, _):
        name = write_references(build, embeddings, images)
    return f"{folder.url}/{name}"


def run_stage(
    build: Build,
    planned: Planned,
    executor: Executor,
    *,
    request: Request | None = None,
    submit: Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]] | None = None,
) -> tuple[Counts, list[ShardFailed]]:
    """Run the unfinished shards of one stage; return the counts of its rows, and the failed shards.

    ``request`` selects rows; ``submit`` replaces the executor's own.
    """
    start = time.monotonic()
    watcher = executor.watcher
    submit = submit or executor.submit
    failures: list[ShardFailed] = []
    with build.lock_stage(planned, watcher.note_waiting):
        counts = build.resolve(planned)
        shards: list[ShardRef] = []
        if request is None or request.selects(planned.stage):
            shards = build.shards(planned, reason=request.only_reason if request else "")
        watcher.begin_stage(planned, shards)
        done = 0
        for outcome in submit(planned, shards):
            watcher.finish_shard(planned, outcome)
            if isinstance(outcome.result, ShardFailed):
                failures.append(outcome.result)
            else:
                done += 1
        if shards:
            if done == len(shards):
                build.drop_journals(planned)
            counts = build.resolve(planned)
    watcher.finish_stage(planned, counts, time.monotonic() - start)
    return counts, failures
