"""Means over windows, joined from several processes, and the file that they go to."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairwright.tasks.training.metrics import HELD_OUT, TRAIN, MetricsFile, Window


def test_means_are_over_examples() -> None:
    window = Window()
    window.add({"loss": 1.0, "margin": 2.0}, 1)
    window.add({"loss": 4.0}, 2)
    assert window.take() == {"loss": 3.0, "margin": 2.0}
    assert window.take() == {}


def test_windows_of_several_processes_are_joined() -> None:
    first, second = Window(), Window()
    first.add({"loss": 1.0}, 3)
    second.add({"loss": 5.0, "accuracy": 1.0}, 1)
    joined = Window()
    joined.join([first.look(), second.empty()])
    assert joined.take() == {"loss": 2.0, "accuracy": 1.0}
    assert (first.take(), second.take()) == ({"loss": 1.0}, {})


def test_a_run_that_goes_on_has_each_step_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    metrics = MetricsFile(path)
    for step in (1, 2, 3):
        metrics.add(step, step / 10, TRAIN, {"loss": float(step)})
    metrics.add(2, 0.2, HELD_OUT, {"loss": 9.0})
    metrics.write()
    again = MetricsFile(path)
    again.resume(2)
    assert (again.has(2, HELD_OUT), again.has(3, TRAIN), again.has(1, HELD_OUT)) == (True, False, False)
    again.add(3, 0.3, TRAIN, {"loss": 4.0})
    again.write()
    rows = pq.read_table(path).to_pylist()
    assert [(row["step"], row["split"], row["value"]) for row in rows] == [
        *[(1, TRAIN, 1.0), (2, TRAIN, 2.0), (2, HELD_OUT, 9.0), (3, TRAIN, 4.0)]
    ]
    assert (again.last(TRAIN), again.last(HELD_OUT)) == ({"loss": 4.0}, {"loss": 9.0})


def test_the_last_step_of_a_split_counts(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.parquet")
    metrics.add(1, 0.1, HELD_OUT, {"loss": 3.0, "accuracy": 0.5})
    metrics.add(2, 0.2, HELD_OUT, {"loss": 2.0})
    metrics.add(3, 0.3, TRAIN, {"loss": 1.0})
    assert (metrics.last(TRAIN), metrics.last(HELD_OUT), metrics.last("test")) == ({"loss": 1.0}, {"loss": 2.0}, {})


def test_an_empty_file_and_none_and_a_broken_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricsFile(tmp_path / "metrics.parquet")
    metrics.resume(5)
    metrics.write()
    metrics.resume(5)
    assert (metrics.entries, metrics.last(TRAIN), caplog.text) == ([], {}, "")
    metrics.path.write_bytes(b"PAR1 broken")
    metrics.resume(5)
    assert "metrics.parquet" in caplog.text
