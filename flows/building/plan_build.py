"""Plan a build: list its source, count unfinished rows per stage, and extrapolate from a trial.

A trial is a real build of the source's first rows in two shards per stage; the second one is timed,
since the first loads models. Everything is taken to grow with the items of the source.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairwright.flows.building.find_models import pin_models, pin_served
from pairwright.flows.building.make_request import Request, make_request
from pairwright.flows.building.progress import LineWatcher
from pairwright.flows.building.run_build import run_build
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, check_stage, with_source
from pairwright.flows.pipeline.read_prompts import pin_prompts
from pairwright.flows.pipeline.read_words import pin_words
from pairwright.flows.versions.version import Version, open_present
from pairwright.schemas.bounds import BudgetConfig, GatesConfig
from pairwright.schemas.config import RunConfig
from pairwright.tasks.sources.sources import list_all, rows_per_shard
from pairwright.tasks.store.executor import Outcome, ShardFailed, count_own_processes
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import RECORD
from pairwright.tasks.store.part import Part, read_about, read_part_columns
from pairwright.tasks.store.pool import Workers, count_cores
from pairwright.tasks.store.scratch import own_temporary_folder, scratch_folder
from pairwright.tasks.store.stage import Planned

# metadata of parts of stages that ask served models
ASKED = ("calls", "prompt_tokens", "completion_tokens")
# amounts with a total; time is elapsed, in the profile's worker processes
AMOUNTS = (*ASKED, "bytes", "seconds")
COLUMNS = ("inputs", "rows", *AMOUNTS)
NAMED = 6  # maximum stages that are named as not known
TRIAL_NOTE = (
    "Extrapolated from a build of the source's first rows. Searching grows with the square of the "
    "images."
)
Amounts = dict[str, float | None]
"""Amounts of a stage by name (``COLUMNS``); ``None``: unknown."""
Rates = Mapping[str, float]
"""Output and cost of an input row of a stage, and its input rows per item of the source
(``inputs``)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a build: what it would do, per stage."""

    version: Version
    is_new: bool  # whether the dataset does not exist yet
    items: int
    new_items: int  # items that the dataset lacks
    stages: Mapping[str, Amounts]
    notes: Sequence[str]

    @property
    def totals(self) -> Amounts:
        """Return the totals over the stages; ``None`` if one is unknown."""
        totals: Amounts = {}
        for name in AMOUNTS:
            amounts = [stage[name] for stage in self.stages.values()]
            known = [amount for amount in amounts if amount is not None]
            totals[name] = sum(known) if len(known) == len(amounts) else None
        return totals

    def as_json(self) -> dict[str, Any]:
        """Return it for scripts."""
        return {
            "source": " ".join(self.version.profile.all_sources),
            "dataset": "" if self.is_new else self.version.folder.url,
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

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Time a shard."""
        super().finish_shard(planned, outcome)
        rows = outcome.shard.stop - outcome.shard.start
        self.seconds[planned.stage.name] = outcome.seconds / rows


def version_to_plan(
    out: str,
    sources: Sequence[str],
    *,
    profile: str,
    settings: Sequence[str],
    limit: int | None,
    until: str,
    planted: int = 0,
) -> Version:
    """Return the version to plan.

    That which ``build`` makes with the same arguments; of an existing dataset without a source or a
    profile, that of its last build with the given changes.
    """
    check_stage(until)
    folder = Folder(out) if out else Folder(".")
    if not out or not folder.exists(RECORD):
        chosen = with_source(load_profile(profile or "scenes", settings), sources, planted)
        chosen = pin_words(pin_prompts(chosen))
        return Version(folder=folder, pipeline=Pipeline(chosen, until), limit=limit)
    present = open_present(folder)
    if sources or profile:
        request = make_request(
            out,
            sources or present.profile.all_sources,
            profile=profile or "scenes",
            settings=settings,
            limit=limit,
            until=until,
            planted=planted,
        )
        return replace(request.version, items=present.items)
    chosen = with_source(change_profile(present.profile, settings), sources, planted)
    chosen = pin_prompts(chosen, again=chosen.prompts != present.profile.prompts)
    if any(text.startswith("tagging.") for text in settings):  # else the texts are on record
        chosen = pin_words(chosen)
    pipeline = Pipeline(chosen, until or present.pipeline.until)
    return replace(present, pipeline=pipeline, limit=limit or present.limit)


def plan_build(version: Version, *, is_new: bool, trial: int = 0) -> Plan:
    """Return the plan of a build."""
    before: dict[str, Counts] = {}
    if not is_new:
        before = {counts.stage: counts for counts in version.stage_counts()}
    known = set[bytes]() if is_new else _read_known_keys(version)
    keys = _list_keys(version)
    new_items = sum(key not in known for key in keys)
    rates: dict[str, Rates] = {}
    failures: list[ShardFailed] = []
    if trial:
        rates, failures = _run_trial(version, trial)
    fresh: dict[str, float | None] = {"items": new_items}
    stages: dict[str, Amounts] = {}
    for planned in version.stages:
        name = planned.stage.name
        inputs = _count_inputs(planned, before.get(name), rates.get(name), len(keys), fresh)
        stages[name] = _plan_stage(version, planned, inputs, rates.get(name))
        fresh[name] = stages[name]["rows"]
    notes = [f"In the trial, shard {failure.name} failed: {failure.error}" for failure in failures]
    if trial:
        notes.append(TRIAL_NOTE)
    notes += _list_notes(version, stages)
    return Plan(
        version=version,
        is_new=is_new,
        items=len(keys),
        new_items=new_items,
        stages=stages,
        notes=notes,
    )


def _list_notes(version: Version, stages: Mapping[str, Amounts]) -> Iterator[str]:
    """Yield notes on the stages whose amounts are not known, and on a known limit."""
    unknown = [name for name, amounts in stages.items() if amounts["rows"] is None]
    if unknown:
        yield _describe_unknown(unknown)
    if version.pipeline.caveat:
        yield f"{version.pipeline.caveat}."


def _read_known_keys(version: Version) -> set[bytes]:
    """Return the keys of the items that the dataset lists."""
    keys = set[bytes]()
    for name in version.items:
        table, _ = read_part_columns(Part(version.folder, name), ("key",))
        keys.update(map(bytes.fromhex, table.column("key").to_pylist()))
    return keys


def _list_keys(version: Version) -> list[bytes]:
    """Return the keys of the items that the source lists now."""
    source = version.profile.source_config
    items = list_all(source, version.limit)
    return [bytes.fromhex(item.key) for item in items]


def _describe_unknown(names: Sequence[str]) -> str:
    """Return a note on the stages whose amounts are not known."""
    left_out = len(names) - NAMED
    more = f" and {left_out} more" if left_out > 0 else ""
    return (
        f"Not known: {', '.join(names[:NAMED])}{more}; not measured here yet. `--trial 50` "
        "measures them."
    )


def _run_trial(version: Version, rows: int) -> tuple[dict[str, Rates], list[ShardFailed]]:
    """Build the first rows in a temporary folder.

    Return the rates of its stages, and the failed shards.
    """
    until = version.pipeline.until
    profile = pin_models(pin_served(version.profile, until), until)
    stage_names = [stage.name for stage in Pipeline(profile, until).running]
    run = RunConfig(
        workers=1,
        rows_per_shard_of=dict.fromkeys(stage_names, -(-rows // 2)),
        budget=BudgetConfig(),
    )
    profile = profile.model_copy(update={"run": run, "gates": GatesConfig()})
    timer = Timer()
    with (
        scratch_folder(own_temporary_folder()) as scratch,
        Workers(1, watcher=timer) as workers,
    ):
        trial = Version(
            folder=Folder(f"{scratch}/trial"),
            pipeline=Pipeline(profile, until),
            limit=min(rows, version.limit or rows),
        )
        report = run_build(Request(version=trial), workers)
        rates: dict[str, Rates] = {}
        with open_present(trial.folder).resolved() as (_, stages):
            items = max(counts.of for planned, counts in stages if planned.reads_source)
            for planned, counts in stages:
                if counts.of > counts.pending:
                    rates[planned.stage.name] = _measure_stage(
                        trial.folder, planned, counts, items=items, timer=timer
                    )
        return rates, report.failures


def _measure_stage(
    folder: Folder, planned: Planned, counts: Counts, *, items: int, timer: Timer
) -> Rates:
    """Return the rates of a stage of the trial, whose rows are not all pending."""
    name = planned.stage.name
    done = counts.of - counts.pending
    parts = [
        Part(folder, f"{planned.table_path}/{file}") for file in folder.names(planned.table_path)
    ]
    totals = dict.fromkeys(ASKED, 0)
    for part in parts:
        if part.name.endswith(".parquet"):
            about = read_about(part)
            for asked in ASKED:
                totals[asked] += int(about.get(asked, 0))
    rates: dict[str, float] = {asked: total / done for asked, total in totals.items()}
    if name in timer.seconds:
        rates["seconds"] = timer.seconds[name]
    rates["rows"] = counts.rows / done
    rates["bytes"] = sum(folder.size_of(part.name) for part in parts) / done
    rates["inputs"] = counts.of / items
    return rates


def _count_inputs(
    planned: Planned,
    before: Counts | None,
    rates: Rates | None,
    items: int,
    fresh: Mapping[str, float | None],
) -> float | None:
    """Return a stage's unfinished rows; ``None``: not known.

    Without rates, ``fresh`` has the new rows of the tables that it reads, if known. A stage that
    needs its whole input is unfinished as a whole when that grows.
    """
    unfinished = before.pending + before.failed if before else 0
    if rates:
        total = round(rates["inputs"] * items)
        done = before.ok + before.dropped if before else 0
        unfinished = max(unfinished, total - done)
        return total if unfinished and planned.inputs.is_whole else unfinished
    if planned.reads_source:
        return unfinished + round(fresh["items"] or 0)
    if any(fresh[table] != 0 for table in planned.inputs.reads):
        return None
    return unfinished


def _plan_stage(
    version: Version, planned: Planned, inputs: float | None, rates: Rates | None
) -> Amounts:
    """Return a stage's amounts for its unfinished rows."""
    if inputs is None:
        return dict.fromkeys(COLUMNS)
    if not inputs:
        return dict.fromkeys(COLUMNS, 0)
    amounts: Amounts = dict.fromkeys(COLUMNS)
    if rates:
        for name in COLUMNS:
            if name in rates:
                amounts[name] = round(rates[name] * inputs)
        if "seconds" in rates:
            shards = _count_parallel_shards(version, planned, inputs)
            amounts["seconds"] = rates["seconds"] * inputs / shards
    amounts["inputs"] = inputs
    return amounts


def _count_parallel_shards(version: Version, planned: Planned, inputs: float) -> int:
    """Return the number of a stage's shards that run at once."""
    run = version.profile.run
    stage = planned.stage
    items_per_shard = rows_per_shard(version.profile.source_config)
    shard_size = (
        run.rows_per_shard_of.get(stage.name)
        or (planned.reads_source and items_per_shard)
        or stage.shard_size(planned.config)
        or run.rows_per_shard
    )
    workers = run.workers or count_cores()
    processes = count_own_processes(planned) or workers
    return max(1, min(processes, workers, math.ceil(inputs / shard_size)))
