"""Foresee a build: list its source, see what is owed, and extrapolate by a trial, by earlier builds, by stored rates.

Reads a source's listing and a dataset; writes nothing, but for the folder of a trial.
"""

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pairwright.flows.find_models import gpus_of
from pairwright.flows.find_rates import rates_for, shard_seconds
from pairwright.flows.load_profile import change_profile, load_profile
from pairwright.flows.pipeline import Pipeline, check_stage
from pairwright.flows.run_build import Request, make_request, with_source
from pairwright.flows.run_trial import Measured, measure_dataset, run_trial, trial_request
from pairwright.flows.version import Version
from pairwright.flows.work_here import working
from pairwright.schemas.config import Profile
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.mining import pair_neighbours, search_neighbours
from pairwright.tasks.models.time_search import seconds_per_image
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.dataset import RECORD, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.measure_stage import StageRates, listed_keys
from pairwright.tasks.store.plan_line import Estimate, Site, StagePlan, plan_line, total_of
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder
from pairwright.tasks.store.stage import Planned

AMOUNTS = ("calls", "prompt_tokens", "completion_tokens", "cpu_hours", "gpu_hours", "hours", "bytes")
"""Those that have a total."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Build to be planned."""

    request: Request
    is_new: bool
    """Whether there is no such dataset yet."""
    items: int
    """In the source's listing."""
    new_items: int
    """Of these, such that the dataset has not."""
    counts: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    """What became of its rows until now."""

    @property
    def planned(self) -> list[Planned]:
        """Return the stages of the build."""
        return planned_of(self.request)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a build: what it would do, per stage."""

    wanted: Wanted
    stages: Sequence[StagePlan]
    notes: Sequence[str]
    trial: str = ""
    """Where the trial is that was kept."""

    @property
    def running(self) -> list[StagePlan]:
        """Return the stages that are on."""
        on = {one.stage.name for one in self.wanted.planned if one.stage.is_on}
        return [one for one in self.stages if one.stage in on]

    @property
    def totals(self) -> dict[str, tuple[Estimate, list[str]]]:
        """Return what the stages need together, and of which it is not known."""
        return {name: total_of(self.stages, name) for name in AMOUNTS}

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        wanted = self.wanted
        stages = [
            {
                "stage": one.stage,
                "known_from": one.known_from,
                **{name: None if amount is None else amount.as_json() for name, amount in one.amounts.items()},
            }
            for one in self.stages
        ]
        return {
            "source": wanted.request.profile.source,
            "dataset": "" if wanted.is_new else wanted.request.folder.url,
            "items": wanted.items,
            "new_items": wanted.new_items,
            "stages": stages,
            "total": {name: {**total.as_json(), "without": missing} for name, (total, missing) in self.totals.items()},
            "notes": list(self.notes),
        }


def foresee_build(
    request: Request, *, is_new: bool, rows: int = 0, keep: bool = False, watch: Callable[[int], None] | None = None
) -> Plan:
    """List a build's source, see what is owed, and say what doing it would take.

    Args:
        request: the build, as ``request_to_plan`` returns it.
        is_new: whether there is no dataset of it yet.
        rows: build so many, the first, to measure what they need; 0: none.
        keep: whether what that built is kept; the plan says where.
        watch: hears how many items of the source are listed.

    Raises:
        ConfigError, ModelError: the trial could not begin.
        SourceError: the source cannot be listed.
    """
    wanted = look_at_source(request, is_new=is_new, say=watch or (lambda _: None))
    if not rows:
        return plan_build(wanted, None)
    with _folder(keep=keep) as place:
        small = trial_request(request, Folder(f"{place}/trial"), rows)
        site = site_of(small, planned_of(small), shard_seconds=0.0)
        with working(small) as work:
            measured = run_trial(small, work, processes=site.processes)
        return replace(plan_build(wanted, measured), trial=f"{place}/trial" if keep else "")


@contextmanager
def _folder(*, keep: bool) -> Generator[str]:
    """Give a folder for a trial, which goes afterwards unless it is to be kept."""
    if keep:
        yield tempfile.mkdtemp(prefix="pairwright-trial-")
        return
    with scratch_folder(own_temporary_folder()) as path:
        yield str(path)


def request_to_plan(
    out: str, source: str | None, *, profile: str, settings: Sequence[str], limit: int | None, until: str
) -> Request:
    """Return the build that is meant: of an existing dataset, its last one with what is asked otherwise.

    Raises:
        ConfigError: the profile, a setting or the stage is wrong.
        SourceError: there is no such source.
    """
    check_stage(until)
    folder = Folder(out) if out else None
    if folder is None or not folder.exists(RECORD):
        chosen = with_source(load_profile(profile or "scenes", settings), source)
        return Request(folder=folder or Folder("."), profile=chosen, limit=limit, until=until)
    if profile:
        return make_request(out, source, profile=profile, settings=settings, limit=limit, until=until)
    last = Request.again(folder)
    chosen = with_source(change_profile(last.profile, settings), source)
    return replace(last, profile=chosen, limit=limit or last.limit, until=until or last.until)


def planned_of(request: Request) -> list[Planned]:
    """Return the stages of a build."""
    return Pipeline(request.profile, request.until).plan()


def look_at_source(request: Request, *, is_new: bool, say: Callable[[int], None]) -> Wanted:
    """List the source and count what a build would owe; ``say`` hears how many items were listed."""
    source = request.profile.sources
    listing = READERS[source.kind].list_items(source, request.limit)
    if is_new:
        items = sum(1 for _ in _said(listing, say))
        return Wanted(request=request, is_new=True, items=items, new_items=items)
    record = read_record(request.folder)
    known, items, new = listed_keys(request.folder, record.items), 0, 0
    for item in _said(listing, say):
        items, new = items + 1, new + (bytes.fromhex(item.key) not in known)
    asked = record.model_copy(update={"profile": request.profile, "limit": request.limit, "until": request.until})
    counts = {counts.stage: counts for counts in Version.of(request.folder, asked).counts()}
    return Wanted(request=request, is_new=False, items=items, new_items=new, counts=counts)


def _said(items: Iterator[ItemRow], say: Callable[[int], None]) -> Iterator[ItemRow]:
    for number, item in enumerate(items, start=1):
        say(number)
        yield item


def plan_build(wanted: Wanted, trial: Measured | None) -> Plan:
    """Return what a build would do: by a trial, else by the dataset's own builds; times else by stored rates."""
    planned, request = wanted.planned, wanted.request
    measured = trial or (Measured() if wanted.is_new else measure_dataset(request.folder))
    stored = rates_for(request.profile, planned)
    rates = {
        one.stage.name: (measured.rates.get(one.stage.name) or StageRates(known_from="")).completed(
            stored.get(one.stage.name)
        )
        for one in planned
    }
    seconds = measured.shard_seconds if measured.shard_seconds is not None else shard_seconds()
    stages = _walk(wanted, planned, rates, measured, site_of(request, planned, shard_seconds=seconds))
    return Plan(wanted=wanted, stages=stages, notes=list(_notes(wanted, stages, measured, is_trial=trial is not None)))


def _walk(
    wanted: Wanted, planned: Sequence[Planned], rates: Mapping[str, StageRates], measured: Measured, site: Site
) -> list[StagePlan]:
    """Walk the line twice: how many images there are to search says what searching one of them takes."""
    known = {"items": wanted.new_items, "images": measured.images}
    stages = plan_line(planned, wanted.counts, rates, **known, site=site)
    searched = next((plan for plan in stages if plan.stage == search_neighbours.STAGE.name), None)
    if searched is None or searched.inputs is None or not measured.widths:
        return stages
    config, images = wanted.request.profile.search, round(searched.inputs.value)
    more = sum(seconds_per_image(images, width, config) for width in measured.widths)
    site = replace(site, more_seconds={searched.stage: more})
    return plan_line(planned, wanted.counts, rates, **known, site=site)


def site_of(request: Request, planned: Sequence[Planned], *, shard_seconds: float) -> Site:
    """Return where a build would run, and how it would be cut: on this machine, by its profile."""
    run, workers = request.profile.run, request.profile.run.workers or count_cores()
    listed = READERS[request.profile.sources.kind].rows_per_shard
    most = {one.stage.name: one.stage.processes(one.config) if one.stage.processes else None for one in planned}
    return Site(
        processes={name: min(count or workers, workers) for name, count in most.items()},
        gpus={one.stage.name: gpus_of(one) for one in planned},
        rows_per_shard={
            one.stage.name: run.rows_per_shard_of.get(one.stage.name)
            or (listed if "items" in one.stage.reads else one.stage.rows_per_shard or run.rows_per_shard)
            for one in planned
        },
        shard_seconds=shard_seconds,
    )


def _notes(wanted: Wanted, stages: Sequence[StagePlan], measured: Measured, *, is_trial: bool) -> Iterator[str]:
    """Yield what is to be known of the numbers."""
    if is_trial:
        yield (
            "Extrapolated from a build of the source's first rows. The ranges hold 19 times of 20 where these are a "
            "fair sample of the others, and not where the source is in some order."
        )
    pairs = next((plan.rows for plan in stages if plan.stage == pair_neighbours.STAGE.name), None)
    if pairs and pairs.high > pairs.value:
        yield (
            "Pairs are taken to grow with the source, as where like images come together; where they are anywhere in "
            "it, there are more: up to the range's end."
        )
    if missing := [plan.stage for plan in stages if plan.rows is None]:
        yield f"Not known: {_listed(missing)}; nobody has measured this here. `--trial 50` does."
    elif untimed := total_of(stages, "hours")[1]:
        yield f"Times are not known of {_listed(untimed)}. `--trial 50` measures them."
    if wanted.counts and not is_trial:
        yield "Rates are those of this dataset's own parts."
    for failure in measured.failures:
        yield f"In the trial, shard {failure.name} failed: {failure.error}"
    yield from _about_budget(wanted.request.profile, stages)


def _about_budget(profile: Profile, stages: Sequence[StagePlan]) -> Iterator[str]:
    """Yield which limits of the profile's budget the build would meet."""
    totals = {name: total_of(stages, name)[0] for name in AMOUNTS}
    needed = {
        "calls": totals["calls"],
        "tokens": totals["prompt_tokens"] + totals["completion_tokens"],
        "hours": totals["hours"],
        "gpu_hours": totals["gpu_hours"],
        "disk_gb": totals["bytes"].times(1e-9),
    }
    for name, limit in profile.run.budget.limits.items():
        need = needed[name]
        if need.high > limit:
            sure = "is not enough" if need.low > limit else "may not be enough"
            yield f"run.budget.max_{name} {limit:,.6g} {sure}: {need.value:,.4g} ({need.low:,.4g} to {need.high:,.4g})."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
