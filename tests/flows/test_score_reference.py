"""A run that is compared with a table: losses as with a copy, also on rows that people edited."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairwright.flows.train_model import train
from pairwright.flows.version import open_version
from pairwright.schemas.decisions import Decision
from pairwright.schemas.rows import PreferenceRow
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.decisions import write_decisions
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.snapshot import read_live

FULL = {"model": {"tuning": "full"}}
NEAR = 5e-5
"""Rewards are differences of sums of some -250, of which float32 tells 3e-5 apart."""
KEPT = ("loss", "margin", "margin/image", "reward/chosen", "reward/rejected", "reward/image")


@pytest.fixture(scope="module")
def dataset(rendered: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(str(shutil.copytree(rendered, tmp_path_factory.mktemp("datasets") / "demo")))


def settings(objective: str = "adavip", **values: Any) -> TrainConfig:
    return TrainConfig.model_validate({"objective": objective, **FULL, **values})


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
