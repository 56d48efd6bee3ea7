"""Interface between the training flow and its objectives: what an objective does, and what it gets.

Two implementations: ``preference_objective`` and ``namc.namc_objective``; ``objective_list`` maps
names to them. Needs no PyTorch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.rows import Dropped, PreferenceRow
from pairwright.schemas.section import Section
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.stage import Planned, Stage
from pairwright.tasks.training.freeze_rows import FrozenRows, Refused
from pairwright.tasks.training.runs import Run

if TYPE_CHECKING:
    from pairwright.tasks.training.ranks import Watcher


class DatasetTables(Protocol):
    """Tables of a dataset's version, which the flow opens for an objective."""

    @property
    def folder(self) -> Folder:
        """Return the dataset's folder."""
        ...

    @property
    def version_number(self) -> int | None:
        """Return the version's number; ``None``: the dataset has no version yet."""
        ...

    @property
    def embedding(self) -> EmbeddingConfig:
        """Return the settings of the images' vectors."""
        ...

    @property
    def stages_by_table(self) -> Mapping[str, Stage]:
        """Return the stages of the version by table."""
        ...

    def read_rows(self, table: str, *, without: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a table without some columns."""
        ...

    def read_llava(self, path: Path, *, seed: int) -> Iterator[PreferenceRow | Dropped]:
        """Yield the conversations of a file in LLaVA's JSON."""
        ...

    def make_table(
        self, stage: Stage, config: Section, *, after: Sequence[Planned] = ()
    ) -> Planned:
        """Make an extra table, complete, which belongs to no version."""
        ...

    def add_missing(self, table: str) -> list[Planned]:
        """Make a table of the pipeline that the version's build did not reach; none if it did."""
        ...

    def open_tables(self, extra: Sequence[Planned] = ()) -> AbstractContextManager[Build]:
        """Open the tables of the version and extra ones, all resolved."""
        ...

    def open_other_dataset(self, url: str) -> "DatasetTables":
        """Return the tables of another dataset."""
        ...


@dataclass(frozen=True, kw_only=True)
class Start:
    """Model that a run starts from, and the settings with what was found out about it."""

    folder: Path  # no folder, ``Path()``: random weights
    config: TrainConfig
    record: dict[str, Any]  # for the run's data.json


@dataclass(frozen=True, kw_only=True)
class FrozenData:
    """Record of a run's frozen rows."""

    source: dict[str, Any]  # dataset, version, table, people's decisions: for data.json
    refused: list[Refused]
    mix: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # further data


@dataclass(frozen=True, kw_only=True)
class Job:
    """Prepared training."""

    run: Run
    config: TrainConfig
    dataset: Folder
    start: Path  # the initial model
    watcher: "Watcher | None" = None

    def frozen_rows(self, split: str) -> FrozenRows:
        """Return the run's frozen rows of a split."""
        return FrozenRows(folder=self.dataset, file=str(self.run.rows), split=split)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Outcome of a training."""

    step: int
    steps: int
    measured: dict[str, float]  # last held-out metrics
    finished: bool  # whether the finished model exists; otherwise it was stopped, with a checkpoint


class Objective(Protocol):
    """Training objective: its defaults, checks, start model, frozen files, and training."""

    def defaults(self, values: Mapping[str, Any], start: TrainConfig | None) -> dict[str, Any]:
        """Return values for unset settings by dotted name.

        ``start``: settings of the run to start from; ``None``: not known, or no such run. Raises
        ``ConfigError`` for a section that does not apply to the objective.
        """
        ...

    def check(self, config: TrainConfig) -> None:
        """Refuse settings that are not supported, or not with these processes and packages."""
        ...

    def resolve_start(self, config: TrainConfig, run: Run, tables: DatasetTables) -> Start:
        """Find the start model; it must be the one that a continued run began with."""
        ...

    def freeze(self, config: TrainConfig, run: Run, tables: DatasetTables) -> FrozenData:
        """Write all files that the training reads into the run's folder."""
        ...

    def restore(self, config: TrainConfig, run: Run, tables: DatasetTables) -> None:
        """Write the files that the training reads again, where a begun run's folder lacks them."""
        ...

    def fit(self, job: Job) -> Ended:
        """Train from the last checkpoint, to the end or until a signal."""
        ...

    def describe_model(self, config: TrainConfig) -> str:
        """Return the model's name for the list of runs."""
        ...

    def can_be_served(self, config: TrainConfig) -> bool:
        """Return whether vLLM can serve the finished model."""
        ...


def read_section(values: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a section of unvalidated settings; empty if it is absent or no section."""
    section: Any = values
    for name in names:
        section = section.get(name)
        if not isinstance(section, dict):
            return {}
    return section
