"""Which charts a run has, and how its metrics are read."""

from pathlib import Path

import pyarrow as pa
import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.training.report.run_charts import HELD_OUT, arrange, draw_run, read_metrics
from pairwright.tasks.training.runs import SCHEMA, Run
from tests.tasks.training.report.handmade_run import HOSTILE, write_metrics


def table(*rows: tuple[int, str, str, float]) -> pa.Table:
    entries = [(step, step / 10, split, name, value) for step, split, name, value in rows]
    columns = list(zip(*entries, strict=True)) or [[]] * len(SCHEMA)
    return pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)


def titles(metrics_table: pa.Table) -> dict[str, list[str]]:
    return {section.title: [chart.title for chart in section.charts] for section in draw_run(arrange(metrics_table))}


def test_points_are_in_the_order_of_steps_and_a_step_logged_again_counts_once() -> None:
    metrics = arrange(table((20, "train", "loss", 2.0), (10, "train", "loss", 3.0), (20, "train", "loss", 1.0)))
    points = metrics.of("loss")
    assert (points.steps.tolist(), points.values.tolist()) == ([10, 20], [3, 1])
    assert (metrics.last, metrics.epoch) == (20, 2.0)


def test_the_last_value_that_is_a_number_is_the_final_one() -> None:
    metrics = arrange(table((1, "train", "loss", 2.0), (2, "train", "loss", float("nan"))))
    assert metrics.final("loss") == 2.0
    assert metrics.final("loss", HELD_OUT) is None


def test_no_metrics_are_no_charts(tmp_path: Path) -> None:
    assert draw_run(read_metrics(tmp_path / "metrics.parquet")) == []
    assert draw_run(arrange(table())) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(StoreError, match=r"metrics\.parquet"):
        read_metrics(tmp_path / "metrics.parquet")


def test_sft_has_no_preference_charts_and_its_likelihood_is_not_drawn_twice() -> None:
    rows = [(step, "train", name, 5.0 - step) for step in (1, 2) for name in ("loss", "nll")]
    assert titles(table(*rows)) == {"Learning": ["Loss"]}
    (section,) = draw_run(arrange(table(*rows)))
    assert [one.name for one in section.charts[0].legend] == ["loss"]
    apart = draw_run(arrange(table(*rows, (2, HELD_OUT, "nll", 9.0))))
    assert [one.name for one in apart[0].charts[0].legend] == ["loss", "negative log-likelihood"]


def test_adavip_has_its_weights_and_images() -> None:
    names = ("reward/chosen", "reward/rejected", "reward/image", "weight/text", "weight/image")
    assert titles(table(*((step, "train", name, 0.5) for step in (1, 2) for name in names))) == {
        "Learning": ["Rewards", "Adaptive weights"]
    }


def test_adpo_has_a_section_for_its_retriever_and_unknown_metrics_have_charts(tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_metrics(run, range(1, 40), measured=(20, 39))
    drawn = {section.title: section.charts for section in draw_run(read_metrics(run.metrics))}
    assert list(drawn) == ["Learning", "The retriever", "Steps and speed", "Further metrics"]
    retriever = ["Entropy", "Effective candidates", "Reward", "Doubtful negatives"]
    assert [chart.title for chart in drawn["The retriever"]] == retriever
    assert [chart.title for chart in drawn["Further metrics"]] == [HOSTILE]
    assert len(drawn["Learning"][0].dots) == 2


def test_what_is_logged_once_at_the_end_is_not_drawn() -> None:
    assert titles(table((9, "train", "train_runtime", 3.0), (9, "train", "total_flos", 0.0))) == {}
