"""The table of scores: evaluations side by side, and one that is made again."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from pairwright.tasks.store.evaluations import EvaluationRow, read_evaluations, write_evaluation
from pairwright.tasks.store.files import Folder

ROW = EvaluationRow(
    run="sft", model="0f", benchmark="cola", data="/cola", asked="", at="2026-01-02T03:04:05+00:00",
    category="", name="image", value=0.5, low=None, high=None, items=4, percent=True,
)  # fmt: skip


def test_concurrent_evaluations_keep_rows_and_repeats_replace(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    rows = [replace(ROW, asked=f"limit {number}", value=number / 20) for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: write_evaluation(folder, [row, replace(row, name="text")]), rows))
    write_evaluation(folder, [replace(ROW, run="dpo")])
    write_evaluation(folder, [])
    sft = read_evaluations(folder, "sft")
    assert {(row.asked, row.value) for row in sft} == {(row.asked, row.value) for row in rows}
    assert len(sft) == 40
    write_evaluation(folder, [replace(rows[3], value=1.0)])
    sft = read_evaluations(folder, "sft")
    assert [row.value for row in sft if row.asked == "limit 3"] == [1.0]
    assert read_evaluations(folder, "dpo") == [replace(ROW, run="dpo")]
    assert read_evaluations(folder, "none") == []
    assert pq.read_table(tmp_path / "evaluations").num_rows == 2 * 19 + 2, "one Parquet table"
