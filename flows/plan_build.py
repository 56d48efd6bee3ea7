"""Plan a build: list its source, count owed rows per stage, and extrapolate from a trial or the dataset's counts.

A trial is a real build of the source's first rows in two shards per stage; the second one is timed, since the first
loads models. Everything is taken to grow with the items of the source.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pairwright.flows.find_models import pin_models, pin_served
from pairwright.flows.load_profile import change_profile, load_profile
from pairwright.flows.pipeline import Pipeline, check_stage, with_source
from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Request, Work, make_request, run_build
from pairwright.flows.version import Version, open_present
from pairwright.schemas.bounds import BudgetConfig, GatesConfig
from pairwright.schemas.config import RunConfig
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.dataset import RECORD, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.part import Part, read_about, read_columns
from pairwright.tasks.store.pool import Outcome, ShardFailed, Workers, count_cores
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder
from pairwright.tasks.store.stage import Planned

ASKED = ("calls", "prompt_tokens", "completion_tokens")  # metadata of parts of stages that ask served models
AMOUNTS = (*ASKED, "seconds", "bytes")  # amounts with a total
Rates = Mapping[str, float]
"""Output and cost of an input row of a stage, and its input rows per item of the source (``inputs``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Plan of a stage; ``None``: unknown."""

    stage: str
    known_from: str = ""  # "trial", "dataset"; empty: not measured, or nothing to do
    inputs: int | None = None
    rows: int | None = None
    calls: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    bytes: int | None = None
    seconds: float | None = None  # elapsed time, in the profile's worker processes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a build: what it would do, per stage."""

    request: Request
    is_new: bool  # whether the dataset does not exist yet
    items: int
    new_items: int  # items that the dataset lacks
    stages: Sequence[StagePlan]
    notes: Sequence[str]

    @property
    def totals(self) -> dict[str, float | None]:
        """Return the totals over the stages; ``None`` if one is unknown."""
        found = {name: [getattr(one, name) for one in self.stages] for name in AMOUNTS}
        return {name: None if None in values else sum(values) for name, values in found.items()}

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return {
            "source": self.request.profile.source,
            "dataset": "" if self.is_new else self.request.folder.url,
            "items": self.items,
            "new_items": self.new_items,
            "stages": [asdict(one) for one in self.stages],
            "total": self.totals,
            "notes": list(self.notes),
        }


class Timer(LineWatcher):
    """Progress as lines, with a record of the seconds per input row of each stage's last shard."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        """Time a shard."""
        super().advance(planned, outcome)
        self.seconds[planned.stage.name] = outcome.seconds / (outcome.shard.stop - outcome.shard.start)


def request_to_plan(
    out: str, source: str | None, *, profile: str, settings: Sequence[str], limit: int | None, until: str
) -> Request:
    """Return the request to plan: for an existing dataset, its last build with the given changes."""
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


def plan_build(request: Request, *, is_new: bool, trial: int = 0) -> Plan:
    """Return the plan of a build."""
    known = set[bytes]()
    for name in () if is_new else read_record(request.folder).items:
        table, _ = read_columns(Part(request.folder, name), ("key",))
        known.update(map(bytes.fromhex, table.column("key").to_pylist()))
    items, new = 0, 0
    for item in READERS[request.profile.sources.kind].list_items(request.profile.sources, request.limit):
        items, new = items + 1, new + (bytes.fromhex(item.key) not in known)
    counts: dict[str, Counts] = {}
    if not is_new:
        words = {"profile": request.profile, "limit": request.limit, "until": request.until}
        record = read_record(request.folder).model_copy(update=words)
        counts = {one.stage: one for one in Version.of(request.folder, record).counts()}
    notes, rates = list[str](), {} if is_new or trial else _measure(request.folder)
    if trial:
        rates, failures = _run_trial(request, trial)
        notes = ["Extrapolated from a build of the source's first rows. Searching grows with the square of the images."]
        notes += [f"In the trial, shard {failure.name} failed: {failure.error}" for failure in failures]
    stages, fresh = list[StagePlan](), dict[str, int | None]({"items": new})
    for planned in request.pipeline.plan():
        name, before = planned.stage.name, counts.get(planned.stage.name)
        one = _plan_stage(request, planned, before, rates.get(name), items=items, fresh=fresh)
        stages.append(replace(one, known_from="trial" if trial else "dataset") if one.inputs and name in rates else one)
        fresh[name] = one.rows
    notes += _notes(request, stages)
    return Plan(request=request, is_new=is_new, items=items, new_items=new, stages=stages, notes=notes)


def _run_trial(request: Request, rows: int) -> tuple[dict[str, Rates], list[ShardFailed]]:
    profile = pin_models(pin_served(request.profile, request.until), request.until)
    names = [stage.name for stage in Pipeline(profile, request.until).running]
    run = RunConfig(workers=1, rows_per_shard_of=dict.fromkeys(names, -(-rows // 2)), budget=BudgetConfig())
    profile = profile.model_copy(update={"run": run, "gates": GatesConfig()})
    with scratch_folder(own_temporary_folder()) as place, Workers(1) as workers:
        timer, folder = Timer(), Folder(f"{place}/trial")
        small = replace(request, folder=folder, profile=profile, limit=min(rows, request.limit or rows))
        report = run_build(small, Work(run_shards=workers.run, watcher=timer))
        return _measure(folder, timer.seconds), report.failures


def _measure(folder: Folder, seconds: Mapping[str, float] | None = None) -> dict[str, Rates]:
    """Return output and cost per input row of a dataset's stages, from their parts and the given times."""
    with open_present(folder).settled() as (_, stages):
        items = max(counts.of for planned, counts in stages if "items" in planned.stage.reads)
        found: dict[str, Rates] = {}
        for planned, counts in stages:
            name, done = planned.stage.name, counts.of - counts.pending
            if not planned.stage.is_on or not done:
                continue
            parts = [Part(folder, f"{planned.table}/{part}") for part in folder.names(planned.table)]
            about = [read_about(part) for part in parts if part.name.endswith(".parquet")]
            amounts = {one: sum(int(said.get(one, 0)) for said in about) / done for one in ASKED}
            amounts |= {"rows": counts.rows / done, "bytes": sum(folder.size_of(part.name) for part in parts) / done}
            amounts |= {"seconds": seconds[name]} if seconds and name in seconds else {}
            found[name] = {**amounts, "inputs": counts.of / items}
        return found


def _plan_stage(
    request: Request,
    planned: Planned,
    before: Counts | None,
    rates: Rates | None,
    *,
    items: int,
    fresh: Mapping[str, int | None],
) -> StagePlan:
    """Return a stage's plan; without rates, ``fresh`` has the new rows of the tables that it reads, if known.

    A stage that needs its whole input owes all of it again when that grows.
    """
    stage, inputs = planned.stage, before.pending + before.failed if before else 0
    if rates:
        every = round(rates["inputs"] * items)
        inputs = max(inputs, every - (before.ok + before.dropped if before else 0))
        inputs = every if inputs and stage.whole else inputs
    elif "items" in stage.reads:
        inputs += fresh["items"] or 0
    elif any(fresh[table] != 0 for table in stage.reads):
        return StagePlan(stage=stage.name)
    if not inputs:
        return StagePlan(stage=stage.name, **dict.fromkeys(("inputs", "rows", *AMOUNTS), 0))
    found = {name: rate * inputs for name, rate in (rates or {}).items() if name != "inputs"}
    if "seconds" in found:
        run = request.profile.run
        listed = (
            READERS[request.profile.sources.kind].rows_per_shard if "items" in stage.reads else stage.rows_per_shard
        )
        size = run.rows_per_shard_of.get(stage.name) or listed or run.rows_per_shard
        workers = run.workers or count_cores()
        own = (stage.processes(planned.config) if stage.processes else None) or workers
        found["seconds"] /= max(1, min(own, workers, math.ceil(inputs / size)))
    amounts: dict[str, Any] = {name: value if name == "seconds" else round(value) for name, value in found.items()}
    return StagePlan(stage=stage.name, inputs=inputs, **amounts)


def _notes(request: Request, stages: Sequence[StagePlan]) -> Iterator[str]:
    if missing := [one.stage for one in stages if one.rows is None]:
        more = f" and {len(missing) - 6} more" if missing[6:] else ""
        yield f"Not known: {', '.join(missing[:6])}{more}; not measured here yet. `--trial 50` measures them."
    elif any(one.seconds is None for one in stages):
        yield "Times are not known. `--trial 50` measures them."
    if caveat := request.pipeline.caveat:
        yield f"{caveat}."
    sums = {name: sum(getattr(one, name) or 0 for one in stages) for name in AMOUNTS}
    needed = {
        "calls": sums["calls"],
        "tokens": sums["prompt_tokens"] + sums["completion_tokens"],
        "hours": sums["seconds"] / 3600,
        "disk_gb": sums["bytes"] / 1e9,
    }
    for name, limit in request.profile.run.budget.limits.items():
        if needed.get(name, 0) > limit:
            yield f"run.budget.max_{name} {limit:,.6g} is not enough: {needed[name]:,.4g}."
