"""Write the report of a version of a dataset: open its tables, and hand them to the pages."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pairwright.flows.version import Version
from pairwright.tasks.report.write_report import Subject, write_report
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.decisions import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import read_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.scratch import replacing
from pairwright.tasks.store.snapshot import Snapshot, describe_version

REPORT = "report"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ReportPages:
    """Pages of a report."""

    page: str
    """Where the first is."""
    pairs: int
    """How many pairs they show."""


def report_dataset(found: Version, *, pairs: int) -> ReportPages:
    """Replace the dataset's report by one that shows a version."""
    folder = found.folder
    with found.settled() as (build, stages):
        counts = [count for _, count in stages]
        subject = subject_of(folder, found, build, counts=counts, pairs=pairs)
        pages = put_pages(folder, REPORT, lambda place: write_report(build, place, subject=subject))
    return ReportPages(page=folder.path(f"{REPORT}/index.html"), pairs=pages.shown)


def subject_of(folder: Folder, found: Version, build: Build, *, counts: Sequence[Counts], pairs: int) -> Subject:
    """Return what pages about an opened version say of it."""
    return Subject(
        name=name_of(folder),
        version=describe_version(build, found.planned),
        made=day_of(found.snapshot),
        counts=counts,
        profile=found.profile,
        pairs=pairs,
        held=_held(folder),
        decisions=read_decisions(folder),
    )


def _held(folder: Folder) -> list[str]:
    """Return why what is shown is not the last build: that was held back by its gates."""
    verdict = read_verdict(folder)
    return [gate.say() for gate in verdict.failed] if verdict and verdict.held else []


def put_pages(folder: Folder, name: str, write: Callable[[Path], T]) -> T:
    """Let ``write`` fill an empty folder, and put it into the dataset in place of what has the name."""
    if folder.is_local:
        with replacing(Path(folder.path(name))) as place:
            return write(place)
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pages = write(Path(place))
        _upload(Path(place), folder, name)
    return pages


def name_of(folder: Folder) -> str:
    """Return what a dataset is called on its pages."""
    return folder.path("").rstrip("/").rpartition("/")[2] or folder.url


def day_of(snapshot: Snapshot | None) -> str:
    """Return the day on which a version was made; empty: there is none."""
    return str(snapshot.content.get("created", ""))[:10] if snapshot else ""


def _upload(place: Path, folder: Folder, target: str = REPORT) -> None:
    """Copy the pages to a store that has no folders to rename: the first page last, what is left over deleted."""
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: name == "index.html"):
        folder.write(f"{target}/{name}", (place / name).read_bytes())
    for inside in (target, f"{target}/images"):
        for name in folder.names(inside):
            if f"{inside}/{name}".removeprefix(f"{target}/") not in names:
                folder.delete(f"{inside}/{name}")
