"""Make the request for a build: a new one, one like the last, one for failed rows only."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pairwright.flows.building import find_models
from pairwright.flows.pipeline.load_profile import change_profile, load_profile
from pairwright.flows.pipeline.pipeline import (
    Pipeline,
    check_stage,
    check_tables,
    list_stages,
    with_source,
)
from pairwright.flows.pipeline.read_prompts import pin_prompts
from pairwright.flows.pipeline.read_words import pin_words
from pairwright.flows.versions.version import Version
from pairwright.schemas.addresses import check_address
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.sources import split_sources
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import check_new
from pairwright.tasks.store.stage import Stage

ROWLESS = ("run.", "gates.", "health.")  # sections that change no row


@dataclass(frozen=True, kw_only=True)
class Request:
    """Request for a build: the version to make, and the failed rows to retry."""

    version: Version
    only_stage: str = ""  # retry failed rows of this stage only (a group or a table)
    only_reason: str = ""  # retry only rows that failed for this reason
    rescan: bool = False  # read all bytes of the source, also of files of equal size and time

    def selects(self, stage: Stage) -> bool:
        """Return whether rows of a stage are made."""
        return not self.only_stage or self.only_stage in (stage.name, stage.group)


def make_request(
    out: str,
    sources: Sequence[str],
    *,
    profile: str,
    settings: Sequence[str],
    limit: int | None,
    until: str,
    exclude: Sequence[str] = (),
    planted: int = 0,
) -> Request:
    """Return a user's request, after all checks that need not read the source."""
    chosen = with_source(load_profile(profile, settings), sources, planted)
    excluded = [recognise_source(text) for text in (*chosen.exclude.sources, *exclude)]
    all_excluded = tuple(dict.fromkeys(excluded))
    exclude_config = chosen.exclude.model_copy(update={"sources": all_excluded})
    chosen = chosen.model_copy(update={"exclude": exclude_config})
    _check_out(out, chosen)
    folder = Folder(out)
    check_new(folder)
    return request_of(Pipeline(chosen, until), folder, limit=limit)


def request_of(pipeline: Pipeline, folder: Folder, *, limit: int | None = None) -> Request:
    """Return the request to build a dataset by a pipeline, with its tables and models looked up."""
    until = pipeline.until
    _check_named_tables(pipeline.profile)
    pinned = find_models.pin_all(pin_words(pin_prompts(pipeline.profile)), until)
    version = Version(folder=folder, pipeline=Pipeline(pinned, until), limit=limit)
    return Request(version=version)


def resume_request(
    present: Version,
    *,
    stage: str,
    reason: str,
    settings: Sequence[str] = (),
    rescan: bool = False,
) -> Request:
    """Return the request of a dataset's last build, or of failed rows of one stage."""
    check_stage(stage)
    for setting in settings:
        if not setting.startswith(ROWLESS):
            raise ConfigError(
                f"--set {setting}: resume takes only settings of `run`, `gates` and `health`, "
                "which change no row; to change others, build with all options: pairwright build "
                "SOURCE --out DIR"
            )
    profile = change_profile(present.profile, settings)
    until = present.pipeline.until
    _check_named_tables(profile)
    if not stage or _loads_models(stage, profile):
        profile = find_models.pin_models(profile, until)
    version = replace(present, pipeline=Pipeline(profile, until))
    return Request(version=version, only_stage=stage, only_reason=reason, rescan=rescan)


def _check_out(out: str, profile: Profile) -> None:
    """Check that the dataset's folder can be written to, and lies outside its source."""
    check_address(out)
    if "://" in out:
        return
    path = Path(out).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not existing.is_dir():
        raise ConfigError(f"--out {out}: {existing} is a file; name a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {out}: {existing} cannot be written to")
    for source in split_sources(profile.source_config):
        folder = source.path
        if not folder or "://" in folder or not Path(folder).is_dir():
            continue
        if path.resolve().is_relative_to(Path(folder).resolve()):
            raise ConfigError(
                f"--out {out} lies in the source's folder, {folder}: name one outside it"
            )


def _check_named_tables(profile: Profile) -> None:
    """Refuse a setting by table for a table that does not exist."""
    check_tables((*profile.run.rows_per_shard_of, *profile.gates.min_yield))


def _loads_models(name: str, profile: Profile) -> bool:
    """Return whether a stage, or one of a group, loads models."""
    for stage in list_stages(profile.stages):
        if name in (stage.name, stage.group) and (stage.pin or stage.models):
            return True
    return False
