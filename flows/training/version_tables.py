"""Tables of a version for a training: the version's own, and extra ones made from them.

An extra table belongs to no version of the dataset: finished rows are kept, a killed command
continues.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.flows.building.open_executor import open_executor
from pairwright.flows.building.run_build import run_stage
from pairwright.flows.pipeline.stages import BY_NAME
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version, open_version
from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import TrainingError
from pairwright.schemas.rows import Dropped, PreferenceRow
from pairwright.schemas.section import Section
from pairwright.tasks.sources.read_llava import read_llava
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.stage import Planned, Stage


@dataclass(frozen=True)
class VersionTables:
    """Tables of a version: ``DatasetTables`` of an objective."""

    version: Version

    @property
    def folder(self) -> Folder:
        """Return the dataset's folder."""
        return self.version.folder

    @property
    def version_number(self) -> int | None:
        """Return the version's number; ``None``: the dataset has no version yet."""
        return self.version.number or None

    @property
    def embedding(self) -> EmbeddingConfig:
        """Return the settings of the images' vectors."""
        return self.version.profile.resolved.embedding

    @property
    def stages_by_table(self) -> Mapping[str, Stage]:
        """Return the stages of the version by table."""
        return {planned.stage.name: planned.stage for planned in self.version.planned}

    def read_rows(self, table: str, *, without: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a table without some columns."""
        return Table[Any](self.version, table).rows(without=without)

    def read_llava(self, path: Path, *, seed: int) -> Iterator[PreferenceRow | Dropped]:
        """Yield the conversations of a file in LLaVA's JSON."""
        return read_llava(path, seed=seed)

    def make_table(
        self, stage: Stage, config: Section, *, after: Sequence[Planned] = ()
    ) -> Planned:
        """Make an extra table, complete, which belongs to no version."""
        return make_table(self.version, stage, config, after=after)

    def add_missing(self, table: str) -> list[Planned]:
        """Make a table of the pipeline that the version's build did not reach; none if it did."""
        if table in self.stages_by_table:
            return []
        stage = BY_NAME[table]
        return [self.make_table(stage, stage.configure(self.version.profile))]

    @contextmanager
    def open_tables(self, extra: Sequence[Planned] = ()) -> Generator[Build]:
        """Open the tables of the version and extra ones, all resolved."""
        with self.version.resolved(extra) as (build, _):
            yield build

    def open_other_dataset(self, url: str) -> "VersionTables":
        """Return the tables of another dataset."""
        return VersionTables(open_version(Folder(url)))


def make_table(
    version: Version, stage: Stage, config: Section, *, after: Sequence[Planned] = ()
) -> Planned:
    """Run the pending rows of a stage outside the version; return the planned stage."""
    planned = version.plan_extra(stage, config, after=after)
    with version.opened([*after, planned]) as build, open_executor(version) as executor:
        version.resolve(build, version.planned)
        for earlier in after:
            build.resolve(earlier)
        counts, failures = run_stage(build, planned, executor)
    pending = counts.failed + counts.pending
    if pending or failures:
        why = failures[0].error if failures else next(iter(counts.reasons), "not known")
        raise TrainingError(
            f"{stage.name}: {pending:,} of {counts.of:,} rows could not be made: {why}. "
            "Finished rows are kept; the same command continues"
        )
    return planned
