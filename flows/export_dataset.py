"""Export a dataset: open one of its versions, the newest by default, and hand its rows to the exporter."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flows.open_version import find_version, settle_version
from flows.prepare_retriever import find_retriever, mine_table
from flows.run_beside import plan_beside
from schemas.errors import ConfigError
from tasks.export.claim_target import check_target
from tasks.export.export_rows import Order, export_rows, say_nothing, stream_preferences
from tasks.export.form import Form, Setting
from tasks.export.formats import find_form
from tasks.export.select_rows import EVERYTHING, Selection
from tasks.export.tally_rows import About, Tally
from tasks.report.measure_writing import measure_writing, say_writing
from tasks.report.tables import Tables
from tasks.store.files import Folder
from tasks.store.ledger import Counts
from tasks.store.snapshot import describe_version
from tasks.store.stage import Planned

TABLE = "preferences"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Say which rows of a dataset are exported, and what goes with them."""

    selection: Selection = EVERYTHING
    version: int | None = None
    """A version's number; ``None``: the newest."""
    negatives: str = ""
    """An ADPO run: the rows are those that a training with the negatives that it has mined would see."""
    model: str = ""
    """Who is asked, where the form is requests."""


ALL = Wanted()


def export_dataset(
    folder: Folder, target: str, *, form: str, wanted: Wanted = ALL, watch: Callable[[int, int], None] = say_nothing
) -> Tally:
    """Write the rows of a version, or those selected, to a new folder.

    Args:
        folder: the dataset.
        target: the new folder, or an earlier export.
        form: one of ``tasks.export.formats.FORMATS``.
        wanted: which rows.
        watch: hears how many rows have passed by, of how many.

    Raises:
        ConfigError: the form is unknown, the target is taken, or there is no such version, or no such preferences or
            negatives.
        ModelError: what makes the vectors of texts is not on this machine; only with ``negatives``.
        StoreError: a file cannot be read or written, or is gone.
    """
    kind = find_form(form)
    _check(kind, target, wanted)
    found = find_version(folder, wanted.version)
    request, planned = found.request, found.planned
    beside = _find_mined(folder, wanted.negatives, wanted.version) if wanted.negatives else []
    with found.opened(beside) as build:
        counts = [*(count for _, count in settle_version(build, found)), *map(build.settle, beside)]
        last = next((stage for stage in planned if stage.stage.name == TABLE), None)
        if last is None or not counts[planned.index(last)].rows:
            raise ConfigError(_nothing(folder, request.until, kind=request.profile.sources.kind))
        total = counts[planned.index(last)].rows
        if beside:
            last, total = beside[-1], counts[-1].rows
            _check_mined(folder, wanted.negatives, counts[-1])
        about = About(
            name=Path(target).resolve().name,
            version=describe_version(build, planned),
            counts=counts,
            profile=request.profile,
            numbers=list(say_writing(measure_writing(Tables(build), counts))),
            mined_by=wanted.negatives,
        )
        setting = Setting(name=about.name, model=wanted.model)
        order = Order(form=kind, about=about, setting=setting, selection=wanted.selection, total=total)
        return export_rows(stream_preferences(build, last), Path(target), order=order, watch=watch)


def _check(form: Form, target: str, wanted: Wanted) -> None:
    """Refuse what cannot be exported whatever the dataset holds."""
    if "://" in target:
        raise ConfigError(f"--to {target}: exports are written to a local folder; copy it from there")
    if bool(wanted.model) != form.needs_model:
        raise ConfigError(
            f"--format {form.name}: its requests name the model that is asked; give it with --model"
            if form.needs_model
            else f"--model {wanted.model}: --format {form.name} asks no model"
        )
    check_target(Path(target))


def _find_mined(folder: Folder, negatives: str, version: int | None) -> list[Planned]:
    """Return the table that a run's retriever mines, last, behind what it is made with; nothing is made."""
    from tasks.training.find_model import require_packages

    if version is not None:
        raise ConfigError(
            f"--version {version}: negatives are mined of the newest version's rows; leave out --version or --negatives"
        )
    retriever = find_retriever(folder, negatives)
    require_packages()
    return mine_table(folder, retriever, have=plan_beside)


def _check_mined(folder: Folder, negatives: str, counts: Counts) -> None:
    """Refuse to export a part of what a training would see."""
    if owed := counts.failed + counts.pending:
        raise ConfigError(
            f"--negatives {negatives}: for {owed:,} of {counts.of:,} preferences nothing was mined yet. A training "
            f"mines it before it begins: pairwright train {folder.url} --objective dpo --set negatives={negatives}"
        )


def _nothing(folder: Folder, until: str, *, kind: str) -> str:
    built = f"was built until {until} and " if until else ""
    return f"{folder.url}: {built}has no preferences to export. {_remedy(folder, until, kind=kind)}"


def _remedy(folder: Folder, until: str, *, kind: str) -> str:
    if kind != "scenes":
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
