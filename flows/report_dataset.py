"""Write the report of a version of a dataset: open its tables, and hand them to the pages."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pairwright.flows.version import Version
from pairwright.tasks.report.write_report import Subject, write_report
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.decisions import read_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import read_verdict
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.scratch import replacing
from pairwright.tasks.store.snapshot import describe_version

REPORT = "report"


@dataclass(frozen=True, kw_only=True)
class ReportPages:
    """Pages of a report."""

    page: str
    pairs: int


def report_dataset(found: Version, *, pairs: int) -> ReportPages:
    """Replace the dataset's report by one that shows a version."""
    folder = found.folder
    with found.settled() as (build, stages):
        subject = subject_of(found, build, counts=[count for _, count in stages], pairs=pairs)
        if folder.is_local:
            with replacing(Path(folder.path(REPORT))) as place:
                shown = write_report(build, place, subject=subject)
        else:
            with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
                shown = write_report(build, Path(place), subject=subject)
                _upload(Path(place), folder)
    return ReportPages(page=folder.path(f"{REPORT}/index.html"), pairs=shown)


def subject_of(found: Version, build: Build, *, counts: Sequence[Counts], pairs: int) -> Subject:
    """Return what pages about an opened version say of it."""
    folder = found.folder
    verdict, content = read_verdict(folder), found.snapshot.content if found.snapshot else {}
    return Subject(
        name=folder.path("").rstrip("/").rpartition("/")[2] or folder.url,
        version=describe_version(build, found.planned),
        made=str(content.get("created", ""))[:10],
        counts=counts,
        profile=found.profile,
        pairs=pairs,
        held=[gate.say() for gate in verdict.failed] if verdict and verdict.held else [],
        decisions=read_decisions(folder),
    )


def _upload(place: Path, folder: Folder) -> None:
    """Copy the pages to a store that has no folders to rename: the first page last, what is left over deleted."""
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: name == "index.html"):
        folder.write(f"{REPORT}/{name}", (place / name).read_bytes())
    for inside in ("", "images/"):
        for name in folder.names(f"{REPORT}/{inside}".rstrip("/")):
            if f"{inside}{name}" not in names:
                folder.delete(f"{REPORT}/{inside}{name}")
