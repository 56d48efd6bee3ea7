"""Write the calibration page of a dataset: settle its stages as far as mining, and hand them to the page."""

import shlex

from pairwright.flows.pipeline import plan_stages, running_stages, why_no_neighbours
from pairwright.flows.report_dataset import day_of, name_of, put_pages
from pairwright.flows.run_build import open_build, request_of
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.report.calibrate_pages import Calibration, Subject, write_calibration
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import describe_version, latest_snapshot

CALIBRATION = "calibrate"
MINING = ("sources", "mining")


def calibrate_dataset(folder: Folder, *, per_bin: int, width: float) -> Calibration:
    """Replace the dataset's calibration page by one that shows its candidates as they are now.

    Raises:
        ConfigError: there is no dataset, or it has no neighbours.
        StoreError: a file cannot be read or written.
    """
    request, items = request_of(folder)
    if "neighbours" not in (stage.name for stage in running_stages(request.profile, request.until)):
        raise ConfigError(f"{folder.url}: has no table of neighbours to choose thresholds from: {_reason(folder)}")
    planned = [one for one in plan_stages(request.profile, request.until) if one.stage.group in MINING]
    with open_build(request, planned, items) as build:
        for stage in planned:
            build.settle(stage)
        subject = Subject(
            name=name_of(folder),
            version=describe_version(build, planned),
            made=day_of(latest_snapshot(folder)),
            dataset=shlex.quote(folder.url),
            ident=make_key("calibration", folder.path("")),
            mining=request.profile.mining,
            neighbours=request.profile.search.k,
            per_bin=per_bin,
            width=width,
        )
        return put_pages(folder, CALIBRATION, lambda place: write_calibration(build, place, subject=subject))


def _reason(folder: Folder) -> str:
    """Say why there are no neighbours, and what to do."""
    request, _ = request_of(folder)
    if "neighbours" in (stage.name for stage in running_stages(request.profile)):
        return (
            f"it was built until {request.until} only. Build it further: `pairwright build "
            f"{shlex.quote(request.profile.source)} --out {shlex.quote(folder.url)} --until mining`"
        )
    return f"{why_no_neighbours(request.profile)}, so no threshold was used. Look at the pairs with `pairwright report`"
