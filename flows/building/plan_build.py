"""Plan a build: list its source, count owed rows per stage, and extrapolate from a trial.

A trial is a real build of the source's first rows in two shards per stage; the second one is timed,
since the first loads models. Everything is taken to grow with the items of the source.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairwright.flows.building.find_models import pin_models, pin_served
from pairwright.flows.building.progress import LineWatcher
from pairwright.flows.building.run_build import Request, Work, make_request, run_build
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, check_stage, with_source
from pairwright.flows.versions.version import Version, open_present
from pairwright.schemas.bounds import BudgetConfig, GatesConfig
from pairwright.schemas.config import RunConfig
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.build import RECORD, read_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.part import Part, read_about, read_columns
from pairwright.tasks.store.pool import Outcome, ShardFailed, Workers, count_cores
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder
from pairwright.tasks.store.stage import Planned

ASKED = (
    "calls",
    "prompt_tokens",
    "completion_tokens",
)  # metadata of parts of stages that ask served models
AMOUNTS = (
    *ASKED,
    "bytes",
    "seconds",
)  # amounts with a total; time is elapsed, in the profile's worker processes
COLUMNS = ("inputs", "rows", *AMOUNTS)
Amounts = dict[str, float | None]
"""Amounts of a stage by name (``COLUMNS``); ``None``: unknown."""
Rates = Mapping[str, float]
"""Output and cost of an input row of a stage, and its input rows per item of the source
(``inputs``)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a build: what it would do, per stage."""

    request: Request
    is_new: bool  # whether the dataset does not exist yet
    items: int
    new_items: int  # items that the dataset lacks
    stages: Mapping[str, Amounts]
    notes: Sequence[str]

    @property
    def totals(self) -> Amounts:
        """Return the totals over the stages; ``None`` if one is unknown."""
        found = {name: [one[name] for one in self.stages.values()] for name in AMOUNTS}
        return {
            name: None if None in some else sum(one or 0 for one in some)
            for name, some in found.items()
        }

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return {
            "source": self.request.profile.source,
            "dataset": "" if self.is_new else self.request.folder.url,
            "items": self.items,
            "new_items": self.new_items,
            "stages": [{"stage": name, **amounts} for name, amounts in self.stages.items()],
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
        self.seconds[planned.stage.name] = outcome.seconds / (
            outcome.shard.stop - outcome.shard.start
        )


def request_to_plan(
    out: str,
    source: str | None,
    *,
    profile: str,
    settings: Sequence[str],
    limit: int | None,
    until: str,
) -> Request:
    """Return the request to plan: for an existing dataset, its last build with the given changes."""
    check_stage(until)
    folder = Folder(out) if out else None
    if folder is None or not folder.exists(RECORD):
        chosen = with_source(load_profile(profile or "scenes", settings), source)
        return Request(folder=folder or Folder("."), profile=chosen, limit=limit, until=until)
    if profile:
        return make_request(
            out, source, profile=profile, settings=settings, limit=limit, until=until
        )
    last = Request.again(folder)
    chosen = with_source(change_profile(last.profile, settings), source)
    return replace(last, profile=chosen, limit=limit or last.limit, until=until or last.until)


def plan_build(request: Request, *, is_new: bool, trial: int = 0) -> Plan:
    """Return the plan of a build."""
    known, before, profile = set[bytes](), dict[str, Counts](), request.profile
    if not is_new:
        record = read_record(request.folder)
        for name in record.items:
            table, _ = read_columns(Part(request.folder, name), ("key",))
            known.update(map(bytes.fromhex, table.column("key").to_pylist()))
        asked = {"profile": profile, "limit": request.limit, "until": request.until}
        before = {
            one.stage: one
            for one in Version.of(request.folder, record.model_copy(update=asked)).counts()
        }
    keys = [
        bytes.fromhex(item.key)
        for item in READERS[profile.sources.kind].list_items(profile.sources, request.limit)
    ]
    new = sum(key not in known for key in keys)
    rates, failures = _run_trial(request, trial) if trial else ({}, [])
    fresh: dict[str, float | None] = {"items": new}
    stages: dict[str, Amounts] = {}
    for planned in request.pipeline.plan():
        name = planned.stage.name
        counts, rate = before.get(name), rates.get(name)
        stages[name] = _plan_stage(request, planned, counts, rate, items=len(keys), fresh=fresh)
        fresh[name] = stages[name]["rows"]
    notes = [f"In the trial, shard {failure.name} failed: {failure.error}" for failure in failures]
    if trial:
        about = "Extrapolated from a build of the source's first rows. Searching grows with the square of the images."
        notes.append(about)
    if missing := [name for name, amounts in stages.items() if amounts["rows"] is None]:
        more = f" and {len(missing) - 6} more" if missing[6:] else ""
        notes.append(
            f"Not known: {', '.join(missing[:6])}{more}; not measured here yet. `--trial 50` measures them."
        )
    if caveat := request.pipeline.caveat:
        notes.append(f"{caveat}.")
    return Plan(
        request=request, is_new=is_new, items=len(keys), new_items=new, stages=stages, notes=notes
    )


def _run_trial(request: Request, rows: int) -> tuple[dict[str, Rates], list[ShardFailed]]:
    """Build the first rows in a folder that goes; return the rates of its stages, and the failed shards."""
    profile = pin_models(pin_served(request.profile, request.until), request.until)
    names = [stage.name for stage in Pipeline(profile, request.until).running]
    run = RunConfig(
        workers=1, rows_per_shard_of=dict.fromkeys(names, -(-rows // 2)), budget=BudgetConfig()
    )
    profile = profile.model_copy(update={"run": run, "gates": GatesConfig()})
    with scratch_folder(own_temporary_folder()) as place, Workers(1) as workers:
        timer, folder = Timer(), Folder(f"{place}/trial")
        small = replace(
            request, folder=folder, profile=profile, limit=min(rows, request.limit or rows)
        )
        report = run_build(small, Work(run_shards=workers.run, watcher=timer))
        found: dict[str, Rates] = {}
        with open_present(folder).settled() as (_, stages):
            items = max(counts.of for planned, counts in stages if "items" in planned.stage.reads)
            for planned, counts in stages:
                name, done = planned.stage.name, counts.of - counts.pending
                if not planned.stage.is_on or not done:
                    continue
                parts = [
                    Part(folder, f"{planned.table}/{part}") for part in folder.names(planned.table)
                ]
                about = [read_about(part) for part in parts if part.name.endswith(".parquet")]
                rates = {one: sum(int(said.get(one, 0)) for said in about) / done for one in ASKED}
                rates |= {"seconds": timer.seconds[name]} if name in timer.seconds else {}
                size = sum(folder.size_of(part.name) for part in parts)
                found[name] = {
                    **rates,
                    "rows": counts.rows / done,
                    "bytes": size / done,
                    "inputs": counts.of / items,
                }
        return found, report.failures


def _plan_stage(
    request: Request,
    planned: Planned,
    before: Counts | None,
    rates: Rates | None,
    *,
    items: int,
    fresh: Mapping[str, float | None],
) -> Amounts:
    """Return a stage's amounts; without rates, ``fresh`` has the new rows of the tables that it reads, if known.

    A stage that needs its whole input owes all of it again when that grows.
    """
    stage, inputs, run = (
        planned.stage,
        before.pending + before.failed if before else 0,
        request.profile.run,
    )
    if rates:
        every = round(rates["inputs"] * items)
        inputs = max(inputs, every - (before.ok + before.dropped if before else 0))
        inputs = every if inputs and stage.whole else inputs
    elif "items" in stage.reads:
        inputs += round(fresh["items"] or 0)
    elif any(fresh[table] != 0 for table in stage.reads):
        return dict.fromkeys(COLUMNS)
    if not inputs:
        return dict.fromkeys(COLUMNS, 0)
    found: Amounts = {
        name: round(rates[name] * inputs) if rates and name in rates else None for name in COLUMNS
    }
    if rates and "seconds" in rates:
        listed = (
            READERS[request.profile.sources.kind].rows_per_shard if "items" in stage.reads else None
        )
        size = (
            run.rows_per_shard_of.get(stage.name)
            or listed
            or stage.rows_per_shard
            or run.rows_per_shard
        )
        workers = run.workers or count_cores()
        own = (stage.processes(planned.config) if stage.processes else None) or workers
        found["seconds"] = (
            rates["seconds"] * inputs / max(1, min(own, workers, math.ceil(inputs / size)))
        )
    return {**found, "inputs": inputs}
