"""Export a dataset: open one of its versions, the newest by default, and hand its preferences to the exporter."""

from pathlib import Path

from flows.open_version import find_version, settle_version
from schemas.errors import ConfigError
from tasks.export.export_hf import EVERYTHING, check_target, export_hf
from tasks.export.select_rows import Selection
from tasks.export.write_card import About, Tally
from tasks.report.measure_writing import measure_writing, say_writing
from tasks.report.tables import Tables
from tasks.store.files import Folder
from tasks.store.snapshot import describe_version

TABLE = "preferences"
FORMATS = ("hf",)


def export_dataset(
    folder: Folder, target: str, *, form: str, selection: Selection = EVERYTHING, version: int | None = None
) -> Tally:
    """Write the preferences of a version (``None``: the newest), or those selected, to a new folder.

    Raises:
        ConfigError: the form is unknown, the target is taken, or there is no such version, or no such preferences.
        StoreError: a file cannot be read or written, or is gone.
    """
    if form not in FORMATS:
        raise ConfigError(f"--format {form}: no such format. There is: {', '.join(FORMATS)}")
    if "://" in target:
        raise ConfigError(f"--to {target}: exports are written to a local folder; copy it from there")
    check_target(Path(target))
    found = find_version(folder, version)
    request, planned = found.request, found.planned
    with found.opened() as build:
        counts = [count for _, count in settle_version(build, found)]
        last = next((stage for stage in planned if stage.stage.name == TABLE), None)
        if last is None or not counts[planned.index(last)].rows:
            raise ConfigError(_nothing(folder, request.until, kind=request.profile.sources.kind))
        about = About(
            name=Path(target).resolve().name,
            version=describe_version(build, planned),
            counts=counts,
            profile=request.profile,
            numbers=list(say_writing(measure_writing(Tables(build), counts))),
        )
        return export_hf(build, last, about=about, target=Path(target), selection=selection)


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
