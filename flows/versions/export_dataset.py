"""Export a version of a dataset: open its tables, and pass its rows to the exporter."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.export_rows import (
    ExportOptions,
    export_rows,
    stream_preferences,
    stream_table,
)
from pairwright.tasks.export.form import ExportSettings, Form
from pairwright.tasks.export.formats import check_target, choose_form
from pairwright.tasks.export.tally_rows import EVERYTHING, ExportedDataset, Selection, Tally
from pairwright.tasks.report.measure_health import measure_health
from pairwright.tasks.report.measure_writing import measure_writing, say_writing
from pairwright.tasks.report.query_tables import Tables
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.gates import say_empty
from pairwright.tasks.store.snapshot import describe_version
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.tiny_model import write_tiny_model

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
    found: Version,
    target: str,
    *,
    form: str,
    config: ExportConfig,
    watch: Callable[[int, int], None],
) -> Tally:
    """Write the selected rows of a version to a new folder."""
    kind = choose_form(form, config.table)
    _check(kind, target, config, found)
    processor: Any = None
    if config.verify and (missing := [name for name in kind.packages if find_spec(name) is None]):
        raise ConfigError(
            f"--verify: --format {kind.name} is read with {', '.join(missing)}, not installed here: "
            f"python -m pip install -c constraints.txt {' '.join(missing)}"
        )
    if config.verify and "trl" in kind.packages:
        require_packages(f"--verify of {kind.name}")
        from pairwright.tasks.training.load_model import load_processor

        with tempfile.TemporaryDirectory() as folder:
            processor = load_processor(write_tiny_model(Path(folder), TEXTS))
    with found.settled() as (build, stages):
        counts = [count for _, count in stages]
        own = next(
            (n for n, (planned, _) in enumerate(stages) if planned.stage.name == kind.reads), None
        )
        if own is None or not counts[own].rows:
            until, url, why = found.record.until, found.folder.url, say_empty(stages, [kind.reads])
            if any(one.stage.name == kind.reads for one in found.off):
                section = found.find(kind.reads).section
                why = f"Its stage is off: `pairwright settings {section}` shows how to switch it on"
            elif not why and until:
                why = "Build the rest with the same `pairwright build` command without --until, or export --table pairs"
            built = f"was built until {until} and " if until else ""
            why = why or f"Finish the rows that are owed with: pairwright resume {url}"
            raise ConfigError(f"{url}: {built}has no {kind.reads} to export. {why}")
        tables, name, decisions = (
            Tables(build),
            Path(target).resolve().name,
            read_decisions(found.folder),
        )
        about = ExportedDataset(
            name=name,
            version=describe_version(build),
            counts=counts,
            profile=found.profile,
            numbers=list(say_writing(measure_writing(tables, counts))) if kind.card else [],
            health=[one[:4] for one in measure_health(tables, found.profile.health)]
            if kind.card
            else (),
            prompts=sorted({name for planned in found.planned for name in planned.stage.prompts}),
        )
        order = ExportOptions(
            form=kind,
            about=about,
            setting=ExportSettings(name=name, model=config.model),
            selection=config.selection,
            decisions=decisions,
            total=counts[own].rows,
            verify=config.verify,
            processor=processor,
        )
        if kind.reads == "preferences":
            groups = stream_preferences(
                build, [one for one in found.planned if one.stage.writes is PreferenceRow][-1]
            )
        else:
            groups = stream_table(
                build, {one.stage.name: one for one in found.planned}, kind.reads, decisions
            )
        return export_rows(groups, Path(target), order=order, watch=watch)


def _check(form: Form, target: str, config: ExportConfig, found: Version) -> None:
    if "://" in target:
        raise ConfigError(
            f"--to {target}: exports are written to a local folder; copy it from there"
        )
    if bool(config.model) != form.needs_model:
        raise ConfigError(
            f"--format {form.name}: its requests name a model; give it with --model"
            if form.needs_model
            else f"--model {config.model}: --format {form.name} has no requests to a model; leave it out"
        )
    if config.table and form.reads == config.table != "preferences":
        chosen, of_pairs = config.selection, config.table != "captions"
        has_splits = config.table == "pairs" or "splits" in {
            one.stage.name for one in found.planned
        }
        given = {
            "--kind": bool(chosen.kinds),
            "--score": chosen.score is not None,
            "--accepted": chosen.accepted and not of_pairs,
            "--split": bool(chosen.splits) and not (of_pairs and has_splits),
        }
        if lacking := next((name for name, is_given in given.items() if is_given), None):
            raise ConfigError(
                f"{lacking}: does not apply to {config.table}; leave it out with --table {config.table}"
            )
    check_target(Path(target))
