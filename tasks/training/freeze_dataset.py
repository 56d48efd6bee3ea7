"""Freeze the training rows of a dataset's version, with people's decisions, into a run's folder.

Reads the training table: preferences, or conversations about the rows of another table. Writes
``rows.arrow``.
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pairwright.schemas.decisions import Decisions
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import DataConfig, TrainConfig
from pairwright.tasks.store.decision_table import read_decisions
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import describe_version, stream_live
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.freeze_rows import (
    Needs,
    Refused,
    count_frozen,
    draw_rows,
    find_held_out,
    freeze_rows,
    list_reasons,
    refuse_easy,
)
from pairwright.tasks.training.objective import DatasetTables, FrozenData
from pairwright.tasks.training.runs import Run

log = logging.getLogger(__name__)
Refuse = Callable[[PreferenceRow], Refused | None]


@dataclass(frozen=True)
class TrainingTable:
    """Open training table, with people's decisions about its rows."""

    build: Build
    planned: Planned
    decisions: Decisions

    def find_held_out(self, split: str) -> frozenset[str]:
        """Return the images of the rows outside a split."""
        return find_held_out(self.build, self.planned, split)

    def read_hardness(self) -> dict[str, float]:
        """Return the hardness of each row that has one, by its key."""
        planned = {planned.stage.name: planned for planned in self.build.planned}.get("hardness")
        if planned is None or not self.build.resolve(planned).rows:
            raise ConfigError(
                f"{self.build.folder.url}: data.min_hardness, data.draw_by_hardness: no hardness "
                "was measured; build it with hardness.enabled=true"
            )
        hardness: dict[str, float] = {}
        for table in stream_live(self.build, planned, ["preference", "hardness"]):
            values = zip(
                table["preference"].to_pylist(), table["hardness"].to_pylist(), strict=True
            )
            hardness.update(values)
        return hardness


@contextmanager
def open_training_table(
    tables: DatasetTables, config: TrainConfig, extra: Sequence[Planned]
) -> Generator[TrainingTable]:
    """Open the resolved training table, with the decisions about its rows."""
    table = config.data.table
    folder = tables.folder
    with tables.open_tables(extra) as build:
        planned = {planned.stage.name: planned for planned in build.planned}.get(config.table)
        if planned is None or not build.resolve(planned).rows:
            raise ConfigError(
                f"{folder.url}: has no {table} to train on. "
                f"See why with: pairwright status {folder.url}"
            )
        decisions = read_decisions(folder)
        if table != "preferences":
            decisions = decisions.without_edits()
        yield TrainingTable(build, planned, decisions)


def _refuse_by(
    refuse: Refuse | None, hardness: Mapping[str, float] | None, data: DataConfig
) -> Refuse | None:
    """Return an objective's reasons against a row, and of training rows their hardness."""
    if hardness is None:
        return refuse

    def refuse_row(row: PreferenceRow) -> Refused | None:
        refusal = refuse(row) if refuse else None
        if refusal or row.split != data.split:
            return refusal
        return refuse_easy(row.key, hardness, data.min_hardness)

    return refuse_row


def freeze_dataset(
    config: TrainConfig,
    run: Run,
    table: TrainingTable,
    tables: DatasetTables,
    *,
    needs: Needs,
    refuse: Refuse | None = None,
) -> FrozenData:
    """Freeze the training and held-out rows; refuse a run without training rows.

    ``refuse``: the objective's own reasons against a row.
    """
    data = config.data
    folder = tables.folder
    hardness = None
    if data.min_hardness or data.draw_by_hardness:
        hardness = table.read_hardness()
    refused, decided = freeze_rows(
        table.build,
        table.planned,
        run.rows,
        needs=needs,
        splits=(data.split, data.eval_split),
        decisions=table.decisions,
        refuse=_refuse_by(refuse, hardness, data),
    )
    if hardness and data.draw_by_hardness:
        draw_rows(run.rows, data.split, hardness, seed=config.seed)
    if not count_frozen(run.rows, data.split):
        why = "it has none"
        if refused:
            why = f"all of its rows are refused: {list_reasons(refused)}"
        raise ConfigError(f"{folder.url}: no row of split {data.split!r} can be trained on: {why}")
    if data.eval_split and not count_frozen(run.rows, data.eval_split):
        log.warning(
            "split %r (data.eval_split) is empty: nothing is measured on held-out rows",
            data.eval_split,
        )
    source = {
        "dataset": folder.url,
        "snapshot": tables.version_number,
        "version": describe_version(table.build),
        "table": table.planned.table_path,
        "decided": dict(sorted(decided.items())),
    }
    return FrozenData(source=source, refused=refused)
