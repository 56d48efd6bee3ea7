"""Audit a dataset: hold its writer and its checks against planted changes, whose truth is known.

Changes are planted into some of the dataset's own photographs (``planted:``); the pairs are
described and checked by the dataset's own profile, in a small dataset below it, DIR/audit. Like any
build it is planned beforehand, resumed after a kill, and repeated at no cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from pathlib import Path
from typing import Any

from pairwright.flows.building.make_request import request_of
from pairwright.flows.building.open_executor import OpenExecutor, open_executor
from pairwright.flows.building.plan_build import Plan, plan_build
from pairwright.flows.building.run_build import Report, run_build
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version, open_present
from pairwright.schemas.bounds import HealthConfig
from pairwright.schemas.claims import Graphs
from pairwright.schemas.config import (
    ExcludeConfig,
    GatesConfig,
    Profile,
    ReadingConfig,
    RobustnessConfig,
)
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.filters import FiltersConfig
from pairwright.schemas.rows import CheckRow, DifferenceRow, ImageRow, PairRow, make_key
from pairwright.tasks.audit.measure_audit import Worth, audit_texts, measure_worth
from pairwright.tasks.audit.write_audit import write_audit_page
from pairwright.tasks.captioning.choose_differences import TABLES as CHECK_TABLES
from pairwright.tasks.store.audits import AUDIT, mark_writer, write_audit
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import RECORD

PHOTOGRAPHS = "photographs"
LAST = "differences"
MIN_PLANTED = 3
"""Planted photographs of each photograph: two pairs."""
MAX_PLANTED = 4


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Outcome of an audit."""

    worth: Worth
    page: Path
    report: Report


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Audit of a dataset's version: the photographs to plant into, and the dataset of the pairs."""

    version: Version
    """The version whose writer is audited."""
    folder: Path
    """Folder of the audit."""
    planted: int
    """Planted photographs of each photograph."""
    keys: Sequence[str]
    """Keys of the photographs."""

    @property
    def profile(self) -> Profile:
        """Return the profile of the audit's dataset."""
        return _audit_profile(self.version.profile, self.folder, planted=self.planted)


def prepare_audit(version: Version, pairs: int) -> Audit:
    """Choose the photographs of an audit, and write them to its folder.

    Raises ``ConfigError`` where no served model writes, or there are no photographs.
    """
    _check_audited(version)
    folder = Path(version.folder.path(AUDIT))
    keys = _draw_images(version, -(-pairs // (MIN_PLANTED - 1)))
    planted = MIN_PLANTED
    if len(keys) * (MIN_PLANTED - 1) < pairs:
        planted = MAX_PLANTED
    _write_photographs(version, keys, folder / PHOTOGRAPHS)
    return Audit(version=version, folder=folder, planted=planted, keys=keys)


def plan_audit(audit: Audit, *, trial: int = 0) -> Plan:
    """Return what an audit would do, per stage; builds only the trial."""
    folder = Folder(str(audit.folder))
    is_new = not folder.exists(RECORD)
    version = Version(folder=folder, pipeline=Pipeline(audit.profile, LAST))
    if not is_new:
        version = replace(version, items=open_present(folder).items)
    return plan_build(version, is_new=is_new, trial=trial)


def run_audit(audit: Audit, executor: OpenExecutor | None = None) -> Audited:
    """Plant, describe and check what is not done yet, measure, and write the page."""
    request = request_of(Pipeline(audit.profile, LAST), Folder(str(audit.folder)))
    open_one = executor or open_executor
    with open_one(request.version) as opened:
        report = run_build(request, opened)
    # The current tables: an unfinished audit publishes no version.
    worth = measure_audit(open_present(request.version.folder))
    mark = mark_writer(request.version.planned, CHECK_TABLES)
    write_audit(audit.version.folder, worth.as_json(), mark=mark)
    page = write_audit_page(
        audit.folder, worth, name=audit.version.folder.url, profile=audit.version.profile.name
    )
    return Audited(worth=worth, page=page, report=report)


def measure_audit(version: Version) -> Worth:
    """Return what the texts and checks of an audit's dataset are worth."""
    pairs = {row.key: row for row in _rows(version, "pairs", PairRow)}
    images = {row.key: row for row in _rows(version, "images", ImageRow, without=("image",))}
    graphs: dict[str, Graphs] = {}
    for pair in pairs.values():
        first, second = images[pair.first].graph, images[pair.second].graph
        assert first is not None
        assert second is not None
        graphs[pair.key] = (first, second)
    checks: list[CheckRow] = []
    for table in CHECK_TABLES:
        checks += _rows(version, table, CheckRow)
    texts = audit_texts(
        _rows(version, "described", DifferenceRow),
        pairs,
        graphs,
        checks,
        _rows(version, "differences", DifferenceRow),
    )
    return measure_worth(texts, len(pairs))


def _rows(version: Version, name: str, kind: type[Any], *, without: Sequence[str] = ()) -> Any:
    """Return the rows of a table; none if its stage is off."""
    if all(planned.stage.name != name for planned in version.planned):
        return []
    table: Table[Any] = Table(version, name)
    assert issubclass(table.row_type, kind)
    return list(table.rows(without=without))


def _check_audited(version: Version) -> None:
    url = version.folder.url
    profile = version.profile
    if not version.folder.is_local:
        raise ConfigError(f"{url}: only a dataset on this machine can be audited; copy it here")
    if profile.source_kind in ("scenes", "planted"):
        raise ConfigError(
            f"{url}: nothing to audit, since its pairs are {profile.source_kind}: their truth is "
            "known, and `make bench BENCH=truth` holds texts against it"
        )
    if "served" not in profile.differences.writer:
        raise ConfigError(
            f"{url}: no served model describes its differences; build it with "
            "--set differences.writer=served and a server (models.chat.endpoint) first"
        )


def _draw_images(version: Version, count: int) -> list[str]:
    """Return the keys of at most ``count`` photographs; more of them include fewer."""
    name = "admitted" if any(p.stage.name == "admitted" for p in version.planned) else "images"
    table: Table[Any] = Table(version, name)
    keys = table.to_arrow(["subject"]).column("subject").to_pylist()
    if not keys:
        raise ConfigError(f"{version.folder.url}: has no images; build it first")
    seed = version.profile.seed
    return nsmallest(count, keys, key=lambda key: make_key("audit", seed, key))


def _write_photographs(version: Version, keys: Sequence[str], folder: Path) -> None:
    """Write the photographs' files into a folder that holds no others."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(keys)
    for path in folder.iterdir():
        if path.stem not in wanted:
            path.unlink()
    missing = wanted - {path.stem for path in folder.iterdir()}
    if not missing:
        return
    quoted = ", ".join(f"'{key}'" for key in sorted(missing))
    table: Table[Any] = Table(version, "images").where(f"key IN ({quoted})")
    for row in table.rows():
        path = folder / f"{row.key}.{row.format}"
        partial = path.with_suffix(".part")
        partial.write_bytes(row.image)
        partial.rename(path)


def _audit_profile(profile: Profile, folder: Path, *, planted: int) -> Profile:
    """Return the dataset's profile with planted photographs as its source."""
    values: dict[str, Any] = {
        "source": f"planted:{(folder / PHOTOGRAPHS).absolute()}",
        "planted": profile.planted.model_copy(update={"photographs": planted}),
        "pairing": "similarity",
        "exclude": ExcludeConfig(),
        "filters": FiltersConfig(),
        "reading": ReadingConfig(),
        "robustness": RobustnessConfig(),
        "gates": GatesConfig(min_yield={LAST: 0.0}),  # the checks may refuse all texts
        "health": HealthConfig(),
    }
    return profile.model_copy(update=values)
