"""Export a version of a dataset: open its tables, and pass its rows to the exporter."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pairwright.flows.versions.count_answers import count_answers
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.suggest import suggest
from pairwright.tasks.export.export_rows import (
    ExportOptions,
    export_rows,
    stream_preferences,
    stream_table,
)
from pairwright.tasks.export.form import SPLITS, ExportSettings, Form
from pairwright.tasks.export.formats import check_target, choose_form
from pairwright.tasks.export.forms.table import OF_IMAGES
from pairwright.tasks.export.tally_rows import EVERYTHING, ExportedDataset, Selection, Tally
from pairwright.tasks.report.measure_health import measure_health
from pairwright.tasks.report.measure_writing import measure_writing, say_writing
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.gates import say_empty
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import describe_version
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.tiny_model import write_tiny_model

Rows = TypeVar("Rows")
TEXTS = ("What differs between the two images?", "A red ball is new; nothing else has changed.")
"""Training texts of a tiny processor's tokenizer, which encodes unseen text as bytes."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Configuration of an export: the table, the selection of rows, the verification."""

    selection: Selection = EVERYTHING
    table: str = ""  # table to export; empty: the form's own
    model: str = ""  # model to ask, for the form of requests
    verify: bool = False  # whether the result is read back


def export_dataset(
    version: Version,
    target: str,
    *,
    form: str,
    config: ExportConfig,
    watch: Callable[[int, int], None],
) -> Tally:
    """Write the selected rows of a version to a new folder."""
    chosen = choose_form(form, config.table)
    _check_target(target)
    _check_options(chosen, config, version)
    check_target(Path(target))
    processor = _load_verifier(chosen) if config.verify else None
    with version.resolved() as (build, stages):
        total = _count_rows(version, stages, chosen.reads)
        decisions = read_decisions(version.folder)
        counts = [count for _, count in stages]
        options = ExportOptions(
            form=chosen,
            about=_describe_dataset(version, build, chosen, target=target, counts=counts),
            setting=ExportSettings(name=Path(target).resolve().name, model=config.model),
            selection=config.selection,
            decisions=decisions,
            total=total,
            verify=config.verify,
            processor=processor,
        )
        tables = {planned.stage.name: planned for planned in version.planned}
        if chosen.reads == "preferences":
            writers = [one for one in version.planned if one.stage.writes is PreferenceRow]
            about_pairs = tables if chosen.knows_pairs else None
            groups = stream_preferences(build, writers[-1], about_pairs)
        else:
            groups = stream_table(build, tables, chosen.reads, decisions)
        groups = _stop_at_removal(groups, build)
        return export_rows(groups, Path(target), order=options, watch=watch)


def _stop_at_removal(groups: Iterable[Rows], build: Build) -> Iterator[Rows]:
    """Yield all groups; raise ``StoreError`` at the end if images were removed meanwhile."""
    yield from groups
    build.check_removals()


def _load_verifier(form: Form) -> Any:
    """Return the processor that reads an export back, if its form needs one.

    ``ConfigError`` if a package is missing.
    """
    missing = [name for name in form.packages if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--verify: --format {form.name} is read with {', '.join(missing)}, not installed "
            f"here: python -m pip install -c constraints.txt {' '.join(missing)}"
        )
    if "trl" not in form.packages:
        return None
    require_packages(f"--verify of {form.name}")
    from pairwright.tasks.training.load_model import load_processor

    with tempfile.TemporaryDirectory() as folder:
        return load_processor(write_tiny_model(Path(folder), TEXTS))


def _count_rows(version: Version, stages: list[tuple[Planned, Counts]], table: str) -> int:
    """Return the number of rows of a table.

    ``ConfigError`` with the reason if it is empty or missing.
    """
    for planned, counts in stages:
        if planned.stage.name == table and counts.rows:
            return counts.rows
    url = version.folder.url
    until = version.pipeline.until
    built = f"was built until {until} and " if until else ""
    why = _say_why_empty(version, stages, table)
    raise ConfigError(f"{url}: {built}has no {table} to export. {why}")


def _say_why_empty(version: Version, stages: list[tuple[Planned, Counts]], table: str) -> str:
    """Return why a table has no rows, and what to do."""
    for planned in version.stages:
        if planned.stage.name == table and not planned.is_on:
            return (
                f"Its stage is off: `pairwright settings {planned.section}` shows how to switch "
                "it on"
            )
    why = say_empty(stages, [table])
    if why:
        return why
    if version.pipeline.until:
        return (
            "Build the rest with the same `pairwright build` command without --until, or export "
            "--table pairs"
        )
    return f"Finish the unfinished rows with: pairwright resume {version.folder.url}"


def _describe_dataset(
    version: Version, build: Build, form: Form, *, target: str, counts: list[Counts]
) -> ExportedDataset:
    """Return the facts that an export states, with measurements if it has a card."""
    tables = Tables(build)
    numbers: list[Any] = []
    health: list[Any] = []
    if form.card:
        numbers = list(say_writing(measure_writing(tables, counts)))
        health = [measured[:4] for measured in measure_health(tables, version.profile.health)]
    prompts: set[str] = set()
    for planned in version.planned:
        prompts.update(planned.inputs.prompts)
    return ExportedDataset(
        name=Path(target).resolve().name,
        version=describe_version(build),
        counts=counts,
        profile=version.profile,
        numbers=numbers,
        health=health,
        prompts=sorted(prompts),
        notes=list(_list_notes(version, counts)),
    )


def _list_notes(version: Version, counts: Sequence[Counts]) -> Iterator[str]:
    """Yield what users of an export must know: unfinished rows, texts of several models."""
    for count in counts:
        unfinished = count.failed + count.pending
        if unfinished:
            yield (
                f"{count.stage}: {unfinished:,} of {count.of:,} inputs are not done, so rows are "
                "missing"
            )
    for answers in count_answers(version.folder, version.stages):
        if answers.mixed:
            yield answers.mixed


def _check_target(target: str) -> None:
    if "://" in target:
        raise ConfigError(
            f"--to {target}: exports are written to a local folder; copy it from there"
        )


def _check_options(form: Form, config: ExportConfig, version: Version) -> None:
    """Refuse options that do not apply to a form or a table."""
    for split in config.selection.splits:
        if split.lower() not in SPLITS:
            raise ConfigError(f"--split {split}: no such split; {suggest(split, SPLITS)}")
    if config.model and not form.needs_model:
        raise ConfigError(
            f"--model {config.model}: --format {form.name} has no requests to a model; leave it out"
        )
    if form.needs_model and not config.model:
        raise ConfigError(f"--format {form.name}: its requests name a model; give it with --model")
    table = config.table
    if not table or table == "preferences" or form.reads != table:
        return
    for option in _inapplicable_options(config, version):
        raise ConfigError(f"{option}: does not apply to {table}; leave it out with --table {table}")


def _inapplicable_options(config: ExportConfig, version: Version) -> list[str]:
    """Return the given options that select rows by what a table other than preferences lacks."""
    selection = config.selection
    of_pairs = config.table not in OF_IMAGES
    tables = {planned.stage.name for planned in version.planned}
    has_splits = of_pairs and (config.table == "pairs" or "splits" in tables)
    options = {
        "--kind": bool(selection.kinds),
        "--score": selection.score is not None,
        "--accepted": selection.accepted and not of_pairs,
        "--split": bool(selection.splits) and not has_splits,
    }
    return [name for name, is_given in options.items() if is_given]
