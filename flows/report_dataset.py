"""Write the report of a dataset: settle its stages as they are now, and hand them to the pages."""

import tempfile
from pathlib import Path

from flows.run_build import open_build, request_of
from flows.stages import plan_stages, stages_until
from tasks.report.write_report import Pages, Subject, write_report
from tasks.store.dataset import Build
from tasks.store.files import Folder
from tasks.store.replace import replacing
from tasks.store.snapshot import describe_version, latest_snapshot

REPORT = "report"


def report_dataset(folder: Folder, *, pairs: int) -> Pages:
    """Replace the dataset's report by one that shows it as it is now.

    Raises:
        ConfigError: there is no dataset.
        StoreError: a file cannot be read or written.
    """
    request, items = request_of(folder)
    planned = plan_stages(request.profile, stages_until(request.profile, request.until))
    with open_build(request, planned, items) as build:
        counts = [build.settle(stage) for stage in planned]
        snapshot = latest_snapshot(folder)
        subject = Subject(
            name=folder.path("").rstrip("/").rpartition("/")[2] or folder.url,
            version=describe_version(build, planned),
            made=str(snapshot.content.get("created", ""))[:10] if snapshot else "",
            counts=counts,
            profile=request.profile,
            pairs=pairs,
        )
        return _write(build, folder, subject)


def _write(build: Build, folder: Folder, subject: Subject) -> Pages:
    if folder.is_local:
        with replacing(Path(folder.path(REPORT))) as place:
            return write_report(build, place, subject=subject)
    with tempfile.TemporaryDirectory(prefix="pairwright-") as place:
        pages = write_report(build, Path(place), subject=subject)
        _upload(Path(place), folder)
    return pages


def _upload(place: Path, folder: Folder) -> None:
    """Copy the pages to a store that has no folders to rename: the first page last, what is left over deleted."""
    names = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    for name in sorted(names, key=lambda name: name == "index.html"):
        folder.write(f"{REPORT}/{name}", (place / name).read_bytes())
    for inside in (REPORT, f"{REPORT}/images"):
        for name in folder.names(inside):
            if f"{inside}/{name}".removeprefix(f"{REPORT}/") not in names:
                folder.delete(f"{inside}/{name}")
