"""Audit a dataset: hold its writer and its checks against planted changes, whose truth is known.

Changes are planted into some of the dataset's own photographs (``planted:``); the pairs are
described and checked by the dataset's own profile, in a small dataset below it, DIR/audit. Like any
build it is planned beforehand, resumed after a kill, and repeated at no cost.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pairwright.flows.building.make_request import request_of
from pairwright.flows.building.open_executor import OpenExecutor, open_executor
from pairwright.flows.building.plan_build import Plan, plan_build
from pairwright.flows.building.run_build import Report, run_build
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version, open_present
from pairwright.schemas.checks import CHECK_TABLES
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
from pairwright.schemas.rows import CheckRow
from pairwright.tasks.audit.measure_audit import Worth, audit_texts, measure_worth
from pairwright.tasks.audit.write_audit import write_audit_page
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
    photographs: int
    """Number of photographs, the first of the folder."""

    @property
    def pairs(self) -> Version:
        """Return the dataset of the planted pairs, before anything is listed."""
        profile = _audit_profile(self.version.profile, self.folder, planted=self.planted)
        return Version(
            folder=Folder(str(self.folder)),
            pipeline=Pipeline(profile, LAST),
            limit=self.photographs,
        )


def prepare_audit(version: Version, pairs: int) -> Audit:
    """Choose the photographs of an audit, and copy those that are missing to its folder.

    Those with the smallest keys, which are hashes, are taken: more pairs include fewer. Raises
    ``ConfigError`` where no served model writes, or there are no photographs.
    """
    _check_audited(version)
    folder = Path(version.folder.path(AUDIT))
    keys = _list_images(version)
    chosen = sorted(keys)[: -(-pairs // (MIN_PLANTED - 1))]
    planted = MIN_PLANTED
    if len(chosen) * (MIN_PLANTED - 1) < pairs:
        planted = MAX_PLANTED
    _copy_photographs(version, chosen, folder / PHOTOGRAPHS, known=set(keys))
    return Audit(version=version, folder=folder, planted=planted, photographs=len(chosen))


def plan_audit(audit: Audit, *, trial: int = 0) -> Plan:
    """Return what an audit would do, per stage; builds only the trial."""
    pairs = audit.pairs
    is_new = not pairs.folder.exists(RECORD)
    if not is_new:
        pairs = replace(pairs, items=open_present(pairs.folder).items)
    return plan_build(pairs, is_new=is_new, trial=trial)


def run_audit(audit: Audit, executor: OpenExecutor | None = None) -> Audited:
    """Plant, describe and check what is not done yet, measure, and write the page."""
    pairs = audit.pairs
    request = request_of(pairs.pipeline, pairs.folder, limit=pairs.limit)
    open_one = executor or open_executor
    with open_one(request.version) as opened:
        report = run_build(request, opened)
    # The current tables: an unfinished audit publishes no version.
    worth = measure_audit(open_present(pairs.folder))
    mark = _mark_audited(audit.version.profile, request.version.profile)
    write_audit(audit.version.folder, worth.as_json(), mark=mark)
    page = write_audit_page(
        audit.folder, worth, name=audit.version.folder.url, profile=audit.version.profile.name
    )
    return Audited(worth=worth, page=page, report=report)


def _mark_audited(album: Profile, audited: Profile) -> str:
    """Return the mark of the album's writer and checks, with the models that were audited.

    A writer ``scene-graph`` beside the served one is the album's alone: nothing of it is audited.
    """
    writers = album.differences.writer
    differences = audited.differences.model_copy(update={"writer": writers})
    profile = audited.model_copy(update={"differences": differences})
    return mark_writer(Pipeline(profile, LAST).plan())


def measure_audit(version: Version) -> Worth:
    """Return what the texts and checks of an audit's dataset are worth."""
    pairs = {row.key: row for row in _rows(version, "pairs")}
    images = {row.key: row for row in _rows(version, "images", without=("image",))}
    graphs: dict[str, Graphs] = {}
    for pair in pairs.values():
        first, second = images[pair.first].graph, images[pair.second].graph
        assert first is not None
        assert second is not None
        graphs[pair.key] = (first, second)
    checks: list[CheckRow] = []
    for table in CHECK_TABLES:
        checks += _rows(version, table)
    texts = audit_texts(
        _rows(version, "described"),
        pairs,
        graphs,
        checks,
        _rows(version, "differences"),
    )
    return measure_worth(texts, len(pairs))


def _rows(version: Version, name: str, *, without: Sequence[str] = ()) -> Iterator[Any]:
    """Yield the rows of a table; none if its stage is off."""
    if _has_table(version, name):
        table: Table[Any] = Table(version, name)
        yield from table.rows(without=without)


def _has_table(version: Version, name: str) -> bool:
    return any(planned.stage.name == name for planned in version.planned)


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


def _list_images(version: Version) -> list[str]:
    """Return the keys of the photographs that pairs may be made of."""
    images: Table[Any] = Table(version, "images")
    photographs = images.where("source <> 'planted'").to_arrow(["key"]).column("key").to_pylist()
    keys: list[str] = photographs
    if _has_table(version, "admitted"):
        admitted: Table[Any] = Table(version, "admitted")
        admitted_keys = set(admitted.to_arrow(["key"]).column("key").to_pylist())
        keys = [key for key in photographs if key in admitted_keys]
    if not keys:
        raise ConfigError(f"{version.folder.url}: has no images; build it first")
    return keys


def _copy_photographs(
    version: Version, chosen: Sequence[str], folder: Path, *, known: Collection[str]
) -> None:
    """Copy the chosen photographs that are missing; delete those that the dataset has no longer.

    A copy has the photograph's key as name and no time of its own, so that one that is written
    again is the same item.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copied: set[str] = set()
    for path in folder.iterdir():
        if path.stem in known:
            copied.add(path.stem)
        else:
            path.unlink()
    missing = ", ".join(f"'{key}'" for key in chosen if key not in copied)
    if not missing:
        return
    photographs: Table[Any] = Table(version, "images").where(f"key IN ({missing})")
    target = Folder(str(folder))
    for row in photographs.rows():
        name = f"{row.key}.{row.format}"
        target.write(name, row.image)
        os.utime(folder / name, ns=(0, 0))


def _audit_profile(profile: Profile, folder: Path, *, planted: int) -> Profile:
    """Return the dataset's profile with planted photographs as its source, described as others."""
    writers = tuple(writer for writer in profile.differences.writer if writer != "scene-graph")
    values: dict[str, Any] = {
        "source": f"planted:{(folder / PHOTOGRAPHS).absolute()}",
        "sources": (),
        # The judge of texts knows the nouns of rendered things only.
        "planted": profile.planted.model_copy(
            update={"photographs": planted, "count": 0, "cutouts": ""}
        ),
        "differences": profile.differences.model_copy(update={"writer": writers}),
        "exclude": ExcludeConfig(),
        "filters": FiltersConfig(),
        "reading": ReadingConfig(),
        "robustness": RobustnessConfig(),
        "gates": GatesConfig(min_yield={LAST: 0.0}),  # the checks may refuse all texts
    }
    return profile.model_copy(update=values)
