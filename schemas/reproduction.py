"""A paper's tables as data: what is built, trained and asked for each number.

Files of ``flows/reproductions`` are read into these sections.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pairwright.schemas.section import Count, Section


class TrainingSet(Section):
    """Dataset to build from folders of the user's data."""

    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    """Kinds of sources (`pairwright sources`), each in the folder of its name or, after a colon,
    of another one; `scenes:` needs none."""
    settings: tuple[str, ...] = ()
    """Settings of the build; {data} is the folder with all data."""
    profile: str = "scenes"
    until: str = ""
    """Last stage to build; empty: all."""
    training_rows: Count = 0
    """Published number of training texts, for the plan; 0: not published."""
    small: "TrainingSet | None" = None
    """What stands for it with `--scale small`; none: itself."""

    @property
    def folders(self) -> list[str]:
        """Return the folders of the sources."""
        folders = [source.partition(":")[2] or source for source in self.sources]
        return [folder for folder in folders if not folder.endswith(":")]


class Arm(Section):
    """One way to train, a row of the tables."""

    about: str = ""
    """Name in the paper."""
    objective: str = ""
    """Objective of the training; empty: no training."""
    start: str = ""
    """Arm whose model it starts from; empty: the start model."""
    training_set: str = ""
    """Dataset to train on; empty: that of the table."""
    recipe: str = ""
    settings: tuple[str, ...] = ()
    differential: bool = False
    table: str = ""
    is_ablation: bool = False
    """Whether it is left out unless `--arms` names it."""


class PaperTable(Section):
    """Table of the paper: a benchmark's scores of each arm."""

    name: str
    """Number and caption in the paper, such as "Table 2: CLEVR-Change"."""
    benchmark: str
    training_set: str
    """Dataset of the arms that name none."""
    columns: dict[str, str]
    """Score of each column: its name in `evaluate model`, after its category and a colon; after
    "not:", 100 less the score."""
    numbers: dict[str, tuple[float | None, ...]]
    """The paper's numbers, by arm; null: not printed."""
    judged: bool = False
    """Whether its scores need a judge."""

    @model_validator(mode="after")
    def _numbers_fill_the_columns(self) -> Self:
        for arm, values in self.numbers.items():
            if len(values) != len(self.columns):
                raise ValueError(f"{self.name}: {arm}: {len(values)} numbers for its columns")
        return self


class Reproduction(Section):
    """A paper's tables, and how each row is made."""

    title: str
    model: str
    """Start model of the paper."""
    training_sets: dict[str, TrainingSet]
    arms: dict[str, Arm]
    tables: Annotated[tuple[PaperTable, ...], Field(min_length=1)]
    rates: dict[str, float] = Field(default_factory=dict[str, float])
    """Rows per second of trainings in the paper, by arm."""
    rates_table: str = ""
    """The paper's table of the rates."""
    differences: tuple[str, ...]
    """What is not as in the paper, or not published."""

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name, arm in self.arms.items():
            if arm.start and arm.start not in self.arms:
                raise ValueError(f"arms.{name}: start: no arm {arm.start}")
            if arm.training_set and arm.training_set not in self.training_sets:
                raise ValueError(f"arms.{name}: training_set: no training set {arm.training_set}")
        for table in self.tables:
            if table.training_set not in self.training_sets:
                raise ValueError(f"{table.name}: no training set {table.training_set}")
            unknown = set(table.numbers) - set(self.arms)
            if unknown:
                raise ValueError(f"{table.name}: no arm {', '.join(sorted(unknown))}")
        return self
