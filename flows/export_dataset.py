"""Export a version of a dataset: open its tables, and hand its rows to the exporter."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.flows.prepare_retriever import find_retriever, mine_table
from pairwright.flows.version import Version
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.export.export_rows import (
    Order,
    export_rows,
    say_nothing,
    stream_conversations,
    stream_preferences,
)
from pairwright.tasks.export.form import Form, Setting
from pairwright.tasks.export.formats import check_target, find_form
from pairwright.tasks.export.tally_rows import EVERYTHING, About, Selection, Tally
from pairwright.tasks.export.verify import Verifier, load_processor, make_ruler
from pairwright.tasks.report.measure_health import judge_health, measure_health
from pairwright.tasks.report.measure_writing import measure_writing, say_writing
from pairwright.tasks.report.tables import Tables
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.decisions import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.snapshot import describe_version
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.tiny_model import write_tiny_model

TABLES = {"preferences": "preferences", "conversations": "comparisons"}
"""Which table the rows of a form are in."""


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """Configuration of reading an export back."""

    processor: str = ""
    """A folder or a name on the Hub: rows are measured in its tokens; empty: they are not."""
    max_length: int = 0
    """Most tokens of a row; 0: what the processor states."""


@dataclass(frozen=True, kw_only=True)
class ExportConfig:
    """Configuration of an export: which rows of a version, and what goes with them."""

    selection: Selection = EVERYTHING
    negatives: str = ""
    """An ADPO run: the rows are those that a training with the negatives that it has mined would see."""
    model: str = ""
    """Who is asked, where the form is requests."""
    verifying: Verifying | None = None
    """How the result is read back; ``None``: it is not."""


ALL = ExportConfig()


def export_dataset(
    found: Version,
    target: str,
    *,
    form: str,
    config: ExportConfig = ALL,
    watch: Callable[[int, int], None] = say_nothing,
) -> Tally:
    """Write the rows of a version, or those selected, to a new folder."""
    kind = find_form(form)
    _check(kind, target, config)
    verifier = _make_verifier(kind, config.verifying) if config.verifying else None
    folder = found.folder
    beside = _find_mined(found, config.negatives) if config.negatives else []
    with found.settled(beside) as (build, stages):
        counts = [count for _, count in stages]
        own = next((n for n, (planned, _) in enumerate(stages) if planned.stage.name == TABLES[kind.reads]), None)
        if own is None or not counts[own].rows:
            raise ConfigError(_nothing(found, kind.reads))
        if beside:
            _check_mined(found, config.negatives, counts[-1])
        about = About(
            name=Path(target).resolve().name,
            version=describe_version(build, found.planned),
            counts=counts,
            profile=found.profile,
            numbers=list(say_writing(measure_writing(Tables(build), counts))) if kind.card else [],
            health=list(_health(Tables(build), found.profile)) if kind.card else [],
            prompts=sorted({name for planned in found.planned for name in planned.stage.prompts}),
            mined_by=config.negatives,
        )
        order = Order(
            form=kind,
            about=about,
            setting=Setting(name=about.name, model=config.model),
            selection=config.selection,
            decisions=read_decisions(folder),
            total=counts[-1 if beside else own].rows,
            verifier=verifier,
        )
        groups = _stream(build, [*found.planned, *beside], kind.reads)
        return export_rows(groups, Path(target), order=order, watch=watch)


def _stream(build: Build, planned: Sequence[Planned], reads: str) -> Iterator[list[PreferenceRow]]:
    """Return the rows that are exported: the table of preferences that is last, or the conversations."""
    if reads == "conversations":
        return stream_conversations(build, {one.stage.name: one for one in planned})
    return stream_preferences(build, [one for one in planned if one.stage.writes is PreferenceRow][-1])


def _check(form: Form, target: str, config: ExportConfig) -> None:
    if "://" in target:
        raise ConfigError(f"--to {target}: exports are written to a local folder; copy it from there")
    if bool(config.model) != form.needs_model:
        raise ConfigError(
            f"--format {form.name}: its requests name the model that is asked; give it with --model"
            if form.needs_model
            else f"--model {config.model}: --format {form.name} asks no model"
        )
    if config.negatives and form.reads != "preferences":
        raise ConfigError(f"--negatives {config.negatives}: {form.reads} have none; leave it out with {form.name}")
    check_target(Path(target))


def _make_verifier(form: Form, verifying: Verifying) -> Verifier:
    """Return what reads a result back: with the processor that is named, or a tiny one where one is needed."""
    if verifying.processor:
        processor = load_processor(verifying.processor)
        return Verifier(form=form, processor=processor, ruler=make_ruler(processor, verifying.max_length))
    if verifying.max_length:
        raise ConfigError("--max-length: in whose tokens? Name a processor with --processor")
    return Verifier(form=form, processor=load_tiny_processor() if form.collates else None)


def _find_mined(found: Version, negatives: str) -> list[Planned]:
    """Return the table that a run's retriever mines, last, behind what it is made with; nothing is made."""
    retriever = find_retriever(found.folder, negatives)
    require_packages()
    return mine_table(found, retriever, have=Version.plan)


def _health(tables: Tables, profile: Profile) -> Iterator[tuple[str, str, str, bool]]:
    if health := measure_health(tables):
        for one in judge_health(health, profile.health):
            yield one.name, one.value, one.about, one.good


def _check_mined(found: Version, negatives: str, counts: Counts) -> None:
    """Refuse to export a part of what a training would see."""
    if owed := counts.failed + counts.pending:
        raise ConfigError(
            f"--negatives {negatives}: for {owed:,} of {counts.of:,} preferences nothing was mined yet. A training "
            f"mines it before it begins: pairwright train {found.folder.url} --objective dpo "
            f"--set negatives_from={negatives}{f' --version {found.number}' if found.number else ''}"
        )


def _nothing(version: Version, what: str) -> str:
    until = version.record.until
    built = f"was built until {until} and " if until else ""
    can_be_made = version.profile.sources.kind == "scenes" or what != "preferences"
    remedy = _remedy(version.folder, until, can_be_made=can_be_made)
    return f"{version.folder.url}: {built}has no {what} to export. {remedy}"


def _remedy(folder: Folder, until: str, *, can_be_made: bool) -> str:
    if not can_be_made:
        return (
            "A build cannot make them: its images have no scene graph, "
            "and captions of photographs need a writer that this version does not have"
        )
    if until:
        return "Build the rest with the same `pairwright build` command without --until"
    return (
        f"See why with: pairwright status {folder.url} "
        f"(rows still owed are finished by: pairwright resume {folder.url})"
    )


TEXTS = ("What differs between the two images?", "A red ball is new; nothing else has changed.")
"""What its tokenizer is trained on. It takes any text: what it has not seen becomes bytes."""


def load_tiny_processor() -> Any:
    """Return the processor of a Qwen2-VL with random weights."""
    require_packages()
    with tempfile.TemporaryDirectory() as folder:
        return load_processor(str(write_tiny_model(Path(folder), TEXTS)))
