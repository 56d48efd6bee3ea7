"""A run that is compared with a table: losses as with a copy, one model in memory, rows scored once for all runs."""

import gc
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairwright.flows.train_model import score_reference, train
from pairwright.flows.version import open_version
from pairwright.schemas.decisions import Decision
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.decisions import write_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import read_live
from pairwright.tasks.training.find_model import Found, find_model
from pairwright.tasks.training.runs import REFERENCE
from pairwright.tasks.training.score_answers import Table, open_reference, open_table

FULL = {"model": {"tuning": "full"}}
NEAR = 5e-5
"""Rewards are differences of sums of some -250, of which float32 tells 3e-5 apart."""
KEPT = ("loss", "margin", "margin/image", "reward/chosen", "reward/rejected", "reward/image")


@pytest.fixture(scope="module")
def dataset(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(str(shutil.copytree(rendered, tmp_path_factory.mktemp("datasets") / "demo")))


def settings(objective: str = "adavip", **values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": objective, **FULL, **values})


def tables(folder: Folder) -> dict[str, dict[str, int]]:
    """Return the parts of each table of references, with when they were written."""
    places = Path(folder.path("tables/reference")).glob("*")
    return {one.name: {part.name: part.stat().st_mtime_ns for part in one.glob("part-*.parquet")} for one in places}


def score(folder: Folder, found: Found, run: Path, config: TrainConfig | None = None) -> Table:
    run.mkdir(exist_ok=True)
    score_reference(open_version(folder), config or settings(), found=found, run=run)
    return open_table(run / REFERENCE)


def living() -> int:
    """Return how many models are in memory."""
    gc.collect()
    return sum(type(one).__name__ == "Qwen2VLForConditionalGeneration" for one in gc.get_objects())


def test_every_row_is_scored_once_for_all_runs(dataset: Folder, qwen: Path, tmp_path: Path) -> None:
    found, before = find_model(str(qwen)), living()
    table = score(dataset, found, tmp_path / "one")
    assert len(table.keys) == sum(_rows(dataset))
    assert (table.keys[:-1] < table.keys[1:]).all()
    assert (table.tokens[:, 0] > 0).all()
    assert (table.logps[table.tokens > 0] < 0).all()
    made = tables(dataset)
    again = score(dataset, found, tmp_path / "two", settings("mdpo"))
    assert tables(dataset) == made
    assert (again.logps == table.logps).all()
    assert living() == before, "the model is gone again"
    assert isinstance(open_reference(settings(), qwen, tmp_path / "one"), Table)
    assert living() == before


def _rows(folder: Folder) -> Iterator[int]:
    for part in Path(folder.path("tables/preferences")).glob("*/part-*.parquet"):
        yield pq.read_table(part, columns=["status"]).column("status").to_pylist().count("ok")


def test_a_table_and_a_copy_train_alike_also_on_rows_that_people_edited(dataset: Folder, qwen: Path) -> None:
    with open_version(dataset).settled() as (build, stages):
        planned = next(planned for planned, _ in stages if planned.stage.name == "preferences")
        rows = list(read_live(build, planned, PreferenceRow, without=("images", "rejected_images")))
    write_decisions(
        dataset,
        [
            Decision(key=row.key, verdict="edit", chosen=f"Somebody wrote {n} words.", at=datetime.now(UTC))
            for n, row in enumerate(rows[::2])
        ],
    )
    found: dict[str, dict[tuple[int, str], float]] = {}
    for by in ("table", "copy"):
        config = settings(
            model={"tuning": "full", "name": str(qwen)},
            reference={"method": by},
            optimiser={"per_device_train_batch_size": 2, "max_steps": 6, "learning_rate": 2e-4},
            data={"dataloader_num_workers": 0, "eval_split": ""},
            output={"logging_steps": 1},
        )
        trained = train(dataset.url, config, name=by)
        rows = pq.read_table(Path(trained.folder) / "metrics.parquet").to_pylist()
        found[by] = {(row["step"], row["name"]): row["value"] for row in rows if row["name"] in KEPT}
    assert {step for step, _ in found["table"]} >= set(range(1, 7))
    assert found["table"] == pytest.approx(found["copy"], rel=1e-5, abs=NEAR)
    losses = [[value for (_, name), value in sorted(found[by].items()) if name == "loss"] for by in found]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(set(losses[0])) > 3, "it learns"
