"""Add rows of further data, LLaVA's JSON or other datasets, to a run's frozen rows (``data.mix``).

Writes rows of files as parts below ``mixed/`` in the run's folder, and rewrites ``rows.arrow``.
"""

import hashlib
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import Section
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.open_tables import RECORD
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.freeze_dataset import open_training_table
from pairwright.tasks.training.freeze_rows import (
    MIXED,
    Needs,
    Refused,
    count_frozen,
    freeze_rows,
    list_reasons,
    mix_rows,
    write_rows,
)
from pairwright.tasks.training.objective import DatasetTables
from pairwright.tasks.training.runs import Run
from pairwright.tasks.training.write_conversations import stage_of


def add_conversations(tables: DatasetTables, config: TrainConfig) -> list[Planned]:
    """Make ``conversations`` of a written table, after the splits; nothing for preferences."""
    table = config.data.table
    stages = tables.stages_by_table
    if table == "preferences" or table not in stages:
        return []
    splits = tables.add_missing("splits")
    return [*splits, tables.make_table(stage_of(stages[table]), Section(), after=splits)]


def mix_datasets(
    config: TrainConfig, run: Run, tables: DatasetTables, *, needs: Needs
) -> tuple[list[dict[str, Any]], list[Refused]]:
    """Add further data to a run's frozen rows.

    Return the rows taken from each source, and the refused ones.
    """
    data = config.data
    own_share = 1 - sum(share for _, share in data.mixed)
    all_rows = count_frozen(run.rows, data.split) / own_share
    records = list[dict[str, Any]]()
    all_refused = list[Refused]()
    for number, (source, share) in enumerate(data.mixed):
        file = run.folder / MIXED / f"{number}.arrow"
        rows = max(1, round(share * all_rows))
        origin, refused = _freeze_source(config, source, tables, file, needs=needs, limit=rows)
        if not count_frozen(file, data.split):
            reasons = list_reasons(refused) or "there is none"
            raise ConfigError(f"data.mix: {source}: no row can be trained on: {reasons}")
        different = mix_rows(run.rows, file, Folder(source), rows=rows, seed=config.seed)
        record = {"source": source, "share": share, "rows": rows, "different": different}
        records.append(record | origin)
        all_refused += refused
    return records, all_refused


def _freeze_source(
    config: TrainConfig,
    source: str,
    tables: DatasetTables,
    file: Path,
    *,
    needs: Needs,
    limit: int,
) -> tuple[dict[str, Any], list[Refused]]:
    """Freeze rows of a file or of another dataset; return its version, and the refused rows."""
    if Path(source).is_file():
        origin = {"sha256": _hash(source)}
        conversations = tables.read_llava(Path(source), seed=config.seed)
        split = config.data.split
        return origin, write_rows(conversations, file, needs=needs, split=split, limit=limit)
    if Folder(source).exists(RECORD):
        other = tables.open_other_dataset(source)
        origin = {"version": other.version_number}
        return origin, _freeze_other(config, other, file, needs=needs)
    raise ConfigError(
        f"data.mix: {source}: is neither LLaVA's JSON nor a dataset (it has no {RECORD})"
    )


def _freeze_other(
    config: TrainConfig, tables: DatasetTables, file: Path, *, needs: Needs
) -> list[Refused]:
    """Freeze the training rows of another dataset; return the refused ones."""
    file.parent.mkdir(exist_ok=True)
    extra = add_conversations(tables, config)
    with open_training_table(tables, config, extra) as table:
        refused, _ = freeze_rows(
            table.build,
            table.planned,
            file,
            needs=needs,
            splits=(config.data.split,),
            decisions=table.decisions,
        )
    return refused


def check_mixed(run: Run) -> None:
    """Refuse to continue a run if a file of its further data has changed."""
    for record in run.data().get("mix", ()):
        if "sha256" in record and _hash(record["source"]) != record["sha256"]:
            raise ConfigError(
                f"data.mix: {record['source']}: has changed since {run.folder} began. "
                "Restore the old file, or give another --name"
            )


def _hash(path: str) -> str:
    with naming(path, "read"), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
