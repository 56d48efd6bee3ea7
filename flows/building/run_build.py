"""Build a dataset: list the source, run each stage on its owed rows, count, publish a version.

Shards run in this process' workers or, if a Prefect server is configured, as task runs
(``flows.prefect.build_dataset``).
"""

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Self

from pairwright.flows.building import find_models
from pairwright.flows.building.progress import LineWatcher, metered, watching
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import (
    Pipeline,
    check_stage,
    check_tables,
    list_stages,
    with_source,
)
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.flows.versions.show_status import Status, say_held
from pairwright.flows.versions.version import Version, now, open_present, publish_version
from pairwright.schemas.bounds import BudgetConfig, GatesConfig
from pairwright.schemas.config import (
    BuildRecord,
    ExcludeConfig,
    Profile,
    ReadingConfig,
    RobustnessConfig,
    resolve,
)
from pairwright.schemas.errors import ConfigError, SourceError, StoreError
from pairwright.schemas.plugins import Registry
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import say_changes
from pairwright.tasks.captioning.validators import VALIDATORS
from pairwright.tasks.mining import embed_images
from pairwright.tasks.mining.admit_images import write_references
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.embedders import EMBEDDERS
from pairwright.tasks.sources import read_items
from pairwright.tasks.sources.readers import READERS, recognise_source
from pairwright.tasks.store.budget import Budget
from pairwright.tasks.store.build import (
    Build,
    Snapshot,
    in_use,
    read_record,
    write_items,
    write_record,
)
from pairwright.tasks.store.files import FULL, Folder
from pairwright.tasks.store.gates import Verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.on_dask import DaskWorkers, Runner
from pairwright.tasks.store.pool import Outcome, ShardFailed, Workers, count_cores
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
ROWLESS = ("run.", "gates.", "health.")  # sections that change no row
MOST_CHANGES = 8  # settings whose change is logged at the start of a build
OWN_NOTES = (
    "about",
    *ROWLESS,
    *(f"found.{name}." for name in Profile.model_fields if name != "models"),
)
"""Fields that change no row, and findings of a build other than served models."""
REGISTRIES: Mapping[str, Registry[Any]] = {
    one.group: one for one in (READERS, EMBEDDERS, VALIDATORS, BY_NAME)
}
RunShards = Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]]
STEPS = {
    "sources": "mine-pairs",
    "mining": "mine-pairs",
    "captioning": "write-texts",
    "rejected": "reject-images",
    "preferences": "build-preferences",
}  # step of a build for each group of stages
RunStep = Callable[[str, Callable[[], Sequence[Counts]]], None]
"""Runner of a step: calls the function, which returns the counts of its stages, exactly once."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Runners of a build's shards and steps, and the watcher of its progress."""

    run_shards: RunShards
    watcher: LineWatcher
    run_step: RunStep | None = None  # ``None``: a step runs directly


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for a build."""

    folder: Folder
    profile: Profile
    limit: int | None = None  # first N images of the source; ``None``: all
    until: str = ""
    only_stage: str = ""  # retry failed rows of this stage only (a group or a table)
    only_reason: str = ""  # retry only rows that failed for this reason

    @property
    def pipeline(self) -> Pipeline:
        """Return its stages."""
        return Pipeline(self.profile, self.until)

    @classmethod
    def again(cls, folder: Folder, record: BuildRecord | None = None) -> Self:
        """Return the request of a build; without its record, of the dataset's last build."""
        record = record or read_record(folder)
        return cls(folder=folder, profile=record.profile, limit=record.limit, until=record.until)


Worker = Callable[
    [Request], AbstractContextManager[Work]
]  # context manager that provides the `Work` of a request


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a build, with its outcome."""

    counts: list[Counts]
    seconds: list[float]
    failures: list[ShardFailed]
    snapshot: Snapshot | None  # newest version; ``None`` if the first build was held back
    verdict: Verdict

    @property
    def stopped(self) -> str:
        """Return why it ended early, such as a used-up budget or a full disk; empty: it did not."""
        return self.verdict.stopped

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is owed any more, and a version was published."""
        return not self.failures and self.verdict.complete and not self.verdict.held

    def status(self, dataset: str) -> Status:
        """Return the status of a dataset after it."""
        version = self.snapshot.number if self.snapshot else 0
        held = list(say_held(self.verdict, version, dataset))
        return Status(dataset=dataset, version=version, counts=self.counts, held=held)


def make_request(
    out: str,
    source: str | None,
    *,
    profile: str,
    settings: Sequence[str],
    limit: int | None,
    until: str,
    exclude: Sequence[str] = (),
) -> Request:
    """Return a user's request, after all checks that need not read the source."""
    chosen = with_source(load_profile(profile, settings), source)
    places = dict.fromkeys(recognise_source(text) for text in (*chosen.exclude.sources, *exclude))
    excluded = chosen.exclude.model_copy(update={"sources": tuple(places)})
    chosen = chosen.model_copy(update={"exclude": excluded})
    _check_place(out, chosen)
    return replace(request_of(Pipeline(chosen, until), Folder(out)), limit=limit)


def request_of(pipeline: Pipeline, folder: Folder) -> Request:
    """Return the request to build a dataset by a pipeline, with its tables and models looked up."""
    profile, until = pipeline.profile, pipeline.until
    check_tables((*profile.run.rows_per_shard_of, *profile.gates.min_yield))
    pinned = find_models.pin_models(find_models.pin_served(profile, until), until)
    return Request(folder=folder, profile=pinned, until=until)


def _check_place(out: str, profile: Profile) -> None:
    if "://" in out:
        return
    place, read = Path(out).absolute(), profile.sources.path
    first = next(path for path in (place, *place.parents) if path.exists())
    if not first.is_dir():
        raise ConfigError(f"--out {out}: {first} is a file; name a folder")
    if not os.access(first, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {out}: {first} cannot be written to")
    if (
        read
        and "://" not in read
        and Path(read).is_dir()
        and place.resolve().is_relative_to(Path(read).resolve())
    ):
        raise ConfigError(f"--out {out} lies in the source's folder, {read}: name one outside it")


def resume_request(
    dataset: str, *, stage: str, reason: str, settings: Sequence[str] = ()
) -> Request:
    """Return the request of the dataset's last build, optionally only for failed rows of one stage."""
    check_stage(stage)
    request = Request.again(Folder(dataset))
    if other := next((setting for setting in settings if not setting.startswith(ROWLESS)), ""):
        raise ConfigError(
            f"--set {other}: resume takes only settings of `run`, `gates` and `health`, which change no row; to change "
            "others, build with all options: pairwright build SOURCE --out DIR"
        )
    request = replace(request, profile=change_profile(request.profile, settings))
    check_tables((*request.profile.run.rows_per_shard_of, *request.profile.gates.min_yield))
    if not stage or any(
        stage in (one.name, one.group)
        for one in list_stages(request.profile.stages)
        if one.pin or one.models
    ):
        request = replace(request, profile=find_models.pin_models(request.profile, request.until))
    return replace(request, only_stage=stage, only_reason=reason)


def run_build(request: Request, work: Work) -> Report:
    """Do everything that is owed, stage by stage, and publish a version if the profile's gates hold."""
    with suppress(ConfigError, StoreError):  # no record yet, or one that this build replaces
        last, own = (
            read_record(request.folder).profile.model_dump(mode="json"),
            request.profile.model_dump(mode="json"),
        )
        changes = list(say_changes(last, own, free=OWN_NOTES))
        for change in changes[:MOST_CHANGES]:
            log.info(
                "%s: changed since the last build of this dataset: %s", request.folder.url, change
            )
        if more := len(changes[MOST_CHANGES:]):
            log.info(
                "%s: and %d more settings, which `pairwright versions` lists afterwards",
                request.folder.url,
                more,
            )
    if caveat := request.pipeline.caveat:
        log.warning("%s", caveat)
    began, source = now(), request.profile.sources
    listed = iter(READERS[source.kind].list_items(source, request.limit))
    first = list(islice(listed, 1))  # a source that cannot be listed leaves no folder
    with in_use(request.folder):  # so that no clean-up deletes the listing
        items = write_items(request.folder, chain(first, listed))
        write_record(
            request.folder, record_of(request, items)
        )  # a build killed from here on can be resumed
        return _run_stages(_embed_excluded(request, work), work, items, began)


def _run_stages(request: Request, work: Work, items: tuple[str, ...], began: str) -> Report:
    """Do what is owed of the items that the source lists now."""
    record = record_of(request, items)
    write_record(request.folder, record)
    version = Version.of(request.folder, record)
    counts, seconds, failures = list[Counts](), list[float](), list[ShardFailed]()
    own = request.profile.run
    budget = Budget(request.folder, own.budget, workers=own.workers or count_cores())
    with version.opened() as build, find_models.servers_of(request.folder) as servers:

        def run_stages(stages: Sequence[Planned]) -> Sequence[Counts]:
            for stage in stages:
                start = time.monotonic()
                if stage.stage.is_on:
                    waiting = find_models.waits_for(stage, counts)
                    shards = partial(
                        find_models.run_served, work.run_shards, servers, request.profile, waiting
                    )
                    count, failed = run_stage(
                        build, stage, request, replace(work, run_shards=budget.limited(shards))
                    )
                    failures.extend(failed)
                else:
                    count = build.settle(stage)
                counts.append(count)
                seconds.append(time.monotonic() - start)
            return counts[-len(stages) :]

        for name, stages in groupby(version.planned, lambda one: STEPS[one.stage.group]):
            run = partial(run_stages, list(stages))
            work.run_step(name, run) if work.run_step else run()
        done = list(zip(version.planned, counts, strict=True))
        stopped = budget.stopped or next(
            (failure.error for failure in failures if FULL in failure.error), ""
        )
        snapshot, verdict = publish_version(
            build, done, record=record, began=began, stopped=stopped
        )
    return Report(
        counts=counts, seconds=seconds, failures=failures, snapshot=snapshot, verdict=verdict
    )


def _embed_excluded(request: Request, work: Work) -> Request:
    """Embed the images to exclude, each set as a small dataset below this one.

    Such a source is read completely: ``reading`` applies to the dataset's own source.
    """
    exclude = request.profile.exclude
    files: list[str] = []
    for source in exclude.sources:
        folder = Folder(f"{request.folder.url.rstrip('/')}/excluded/{make_key(source)[:16]}")
        own: dict[str, Any] = {
            "source": source,
            "exclude": ExcludeConfig(),
            "reading": ReadingConfig(),
        }
        own |= {"gates": GatesConfig(), "robustness": RobustnessConfig()}
        own["run"] = request.profile.run.model_copy(update={"budget": BudgetConfig()})
        profile = resolve(request.profile, {"exclude.files": (), "exclude.marks": ()}).model_copy(
            update=own
        )
        inner = Request(folder=folder, profile=profile, until=embed_images.STAGE.name)
        if not run_build(inner, work).is_complete:
            raise SourceError(
                f"{source}: not all images to exclude could be read: build again, or leave it out"
            )
        with open_present(folder).settled() as (build, stages):
            by_name = {planned.stage.name: planned for planned, _ in stages}
            name = write_references(
                build, by_name[embed_images.STAGE.name], by_name[read_items.IMAGES.name]
            )
        files.append(f"{folder.url}/{name}")
    if not files:
        return request
    marks = tuple(file.rpartition("/")[2] for file in files)
    return replace(
        request,
        profile=resolve(request.profile, {"exclude.files": tuple(files), "exclude.marks": marks}),
    )


def run_stage(
    build: Build, planned: Planned, request: Request, work: Work
) -> tuple[Counts, list[ShardFailed]]:
    """Run the owed shards of one stage; return the counts of its rows, and the failed shards."""
    start, failures, done = time.monotonic(), list[ShardFailed](), 0
    with build.locked(planned, work.watcher.waiting):
        counts = build.settle(planned)
        chosen = not request.only_stage or request.only_stage in (
            planned.stage.name,
            planned.stage.group,
        )
        shards = build.shards(planned, reason=request.only_reason) if chosen else []
        work.watcher.begin(planned, shards)
        for outcome in work.run_shards(planned, shards):
            work.watcher.advance(planned, outcome)
            if isinstance(outcome.result, ShardFailed):
                failures.append(outcome.result)
            else:
                done += 1
        if shards:
            if done == len(shards):
                build.drop_journals(planned)
            counts = build.settle(planned)
    work.watcher.end(planned, counts, time.monotonic() - start)
    return counts, failures


def record_of(request: Request, items: tuple[str, ...]) -> BuildRecord:
    """Return the record that ``resume`` and ``status`` need."""
    places = [(place, *place.split(".", 1)) for place in request.profile.named]
    origins = {place: REGISTRIES[group].origin(name) for place, group, name in places}
    return BuildRecord(
        plugins={place: origin for place, origin in origins.items() if origin},
        items=items,
        profile=resolve(request.profile, {}),
        limit=request.limit,
        until=request.until,
    )


@contextmanager
def workers_of(request: Request) -> Generator[Runner]:
    """Yield the workers of the request's profile, which end afterwards; those of an existing cluster stay."""
    run, profile = request.profile.run, request.profile
    if run.runner == "processes":
        with Workers(run.workers) as workers:
            yield workers
        return
    for field, chat in (
        find_models.served_models(profile, request.until).items() if run.address else ()
    ):
        if chat.launch.enabled:
            raise ConfigError(
                f"{field}.launch starts vLLM on this machine, where workers on other machines do not look for "
                f"it: start it yourself, set {field}.launch.enabled to false and name its addresses in {field}.endpoint"
            )
    sources = (source.partition(":")[2] for source in (profile.source, *profile.exclude.sources))
    paths = [
        path
        for path in (profile.reading.images, *sources)
        if path and "://" not in path and Path(path).exists()
    ]
    paths += [request.folder.path("")] if request.folder.is_local else []
    with DaskWorkers(run, gpus=0 if run.address else count_gpus(), paths=paths) as workers:
        yield workers


@contextmanager
def working(request: Request) -> Generator[Work]:
    """Yield the runner of a build's shards in its profile's workers, and the watcher of its progress."""
    port, ours = request.profile.run.metrics_port, logging.getLogger("pairwright")
    if not ours.hasHandlers():  # the program that imports Pairwright has not configured logging
        logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
        ours.setLevel(logging.INFO)
    with watching() as shown, metered(shown, port) as watcher, workers_of(request) as workers:
        yield Work(run_shards=workers.run, watcher=watcher)
