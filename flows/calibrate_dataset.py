"""Write the calibration page of a dataset: settle its stages as far as mining, and hand them to the page."""

import shlex
from dataclasses import dataclass

from pairwright.flows.pipeline import Pipeline, why_no_neighbours
from pairwright.flows.report_dataset import day_of, name_of, put_pages
from pairwright.flows.version import Version, open_present
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import make_key
from pairwright.tasks.report.calibrate_pages import Subject, write_calibration
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import describe_version, latest_snapshot

CALIBRATION = "calibrate"
MINING = ("sources", "mining")


@dataclass(frozen=True, kw_only=True)
class CalibrationPage:
    """Page to choose thresholds by."""

    page: str
    """Where it is."""
    pairs: int
    """How many pairs it shows, to be judged."""
    bins: int


def calibrate_dataset(folder: Folder, *, per_bin: int, width: float) -> CalibrationPage:
    """Replace the dataset's calibration page by one that shows its candidates as they are now.

    Raises:
        ConfigError: there is no dataset, or it has no neighbours.
        StoreError: a file cannot be read or written.
    """
    present = open_present(folder)
    if "neighbours" not in (one.stage.name for one in present.planned if one.stage.is_on):
        raise ConfigError(f"{folder.url}: has no table of neighbours to choose thresholds from: {_reason(present)}")
    planned = [one for one in present.planned if one.stage.group in MINING]
    with present.opened() as build:
        present.settle(build, planned)
        subject = Subject(
            name=name_of(folder),
            version=describe_version(build, planned),
            made=day_of(latest_snapshot(folder)),
            dataset=shlex.quote(folder.url),
            ident=make_key("calibration", folder.path("")),
            mining=present.profile.mining,
            neighbours=present.profile.search.k,
            per_bin=per_bin,
            width=width,
        )
        made = put_pages(folder, CALIBRATION, lambda place: write_calibration(build, place, subject=subject))
    return CalibrationPage(page=folder.path(f"{CALIBRATION}/index.html"), pairs=made.pairs, bins=made.bins)


def _reason(present: Version) -> str:
    """Say why there are no neighbours, and what to do."""
    profile = present.profile
    if "neighbours" in (stage.name for stage in Pipeline(profile).running):
        return (
            f"it was built until {present.record.until} only. Build it further: `pairwright build "
            f"{shlex.quote(profile.source)} --out {shlex.quote(present.folder.url)} --until mining`"
        )
    return f"{why_no_neighbours(profile)}, so no threshold was used. Look at the pairs with `pairwright report`"
