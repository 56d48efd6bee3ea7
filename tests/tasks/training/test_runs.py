"""A run's folder: names, locks, what is written whole or not at all."""

import pyarrow.parquet as pq
import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.section import say_changes
from pairwright.schemas.training import OutputConfig, TrainConfig
from pairwright.tasks.store.manifest import find_damage
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.runs import (
    FREE,
    HELD_OUT,
    TRAIN,
    MetricsFile,
    Run,
    Window,
    append_refused,
    check_run_name,
    drop_folder,
    publish_folder,
)
from tests.fixtures.runs_to_train import read_lines

CONFIG = TrainConfig(objective="dpo")


def filled(folder, text=""):
    folder.mkdir(parents=True)
    (folder / "file").write_text(text)
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a\\b", "-a", "a b", "a\n", "x" * 101]
)
def test_names_that_are_no_folders(name):
    with pytest.raises(ConfigError, match="--name"):
        check_run_name(name)


def test_a_run_remembers_what_it_began_with(tmp_path):
    run = Run(tmp_path / "runs" / "one")
    assert run.config() is None
    run.record_start(CONFIG, {"table": "t"}, [Refused(key="a", reason="too long")])
    assert (run.config(), run.data()) == (CONFIG, {"table": "t"})
    assert (run.latest(), run.is_finished) == (None, False)


def test_a_forgotten_run_loses_its_scores(tmp_path):
    run = Run(tmp_path / "runs" / "one")
    run.record_start(CONFIG, {}, [])
    for name in ("one", "two"):
        filled(tmp_path / "evaluations" / name)
    run.forget()
    assert run.config() is None
    assert names_in(tmp_path / "evaluations") == ["two"]


def test_the_latest_checkpoint_is_that_of_the_most_steps(tmp_path):
    run = Run(tmp_path)
    for step in ("9", "10", "x", ""):
        filled(run.checkpoints / f"checkpoint-{step}")
    filled(run.checkpoints / ".checkpoint-11.old")
    assert run.steps() == [9, 10]
    assert run.latest() == run.checkpoints / "checkpoint-10"


def test_what_a_killed_process_left_goes(tmp_path):
    run = Run(tmp_path)
    for name in (".saving/checkpoint-3", ".finishing", "checkpoints/.checkpoint-1.old"):
        filled(run.folder / name)
    filled(run.checkpoint(2))
    filled(run.folder / "places/grids.npy")
    run.clean()
    assert names_in(run.folder) == ["checkpoints", "places"]
    assert names_in(run.checkpoints) == ["checkpoint-2"]


@pytest.mark.parametrize(("keep", "kept"), [(True, ["checkpoints"]), (False, [])])
def test_a_run_that_was_killed_at_its_end_is_cleaned_up(keep, kept, tmp_path):
    run = Run(tmp_path)
    for folder in (run.checkpoint(2), run.folder / "places/grids.npy", run.model):
        filled(folder)
    run.write_config(CONFIG.model_copy(update={"output": OutputConfig(keep_checkpoints=keep)}))
    run.clean()
    assert names_in(run.folder) == ["checkpoint", *kept, "config.yaml"]


def test_one_process_at_a_time(tmp_path):
    run = Run(tmp_path / "run")
    with (
        run.lock_run(),
        pytest.raises(ConfigError, match="--name"),
        Run(tmp_path / "run").lock_run(),
    ):
        pass
    with run.lock_run():
        (run.folder / "config.yaml").touch()
    assert names_in(run.folder) == [".lock", "config.yaml"]


def test_a_run_that_was_not_begun_leaves_no_folder(tmp_path):
    run = Run(tmp_path / "runs" / "run")
    with pytest.raises(ValueError, match="refused"), run.lock_run():
        raise ValueError("refused")
    assert not run.folder.exists()


def test_a_folder_takes_the_place_of_another(tmp_path):
    final = filled(tmp_path / "final", "old")
    publish_folder(filled(tmp_path / "staged", "new"), final)
    assert (final / "file").read_text() == "new"
    assert find_damage(final) == ""
    assert names_in(tmp_path) == ["final"]
    drop_folder(final)
    assert names_in(tmp_path) == []


def test_refused_rows_are_listed_once(tmp_path):
    path = tmp_path / "refused.jsonl"
    rows = [Refused(key=key, reason="too long") for key in "aba"]
    assert [row.key for row in append_refused(path, rows)] == ["a", "b"]
    assert [row.key for row in append_refused(path, [*rows, Refused(key="c", reason="x")])] == ["c"]
    lines = read_lines(path)
    assert lines[-1] == {"key": "c", "reason": "x", "detail": ""}
    assert len(lines) == 3
    assert append_refused(path, []) == []


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ({"dpo": {"beta": 0.2}}, ["dpo.beta was 0.1, is 0.2"]),
        ({"data": {"max_train_rows": 5}}, ["data.max_train_rows was 0, is 5"]),
        ({"start": "sft"}, ["start was none, is sft"]),
        ({"data": {"dataloader_num_workers": 3}}, []),
        ({"output": {"save_steps": 7}}, []),
        ({"optimiser": {"gradient_checkpointing": True}}, []),
    ],
)
def test_differences_name_the_fields_that_change_a_result(values, changes):
    other = TrainConfig.model_validate({"objective": "dpo", **values})
    before, after = (config.model_dump(mode="json") for config in (CONFIG, other))
    assert list(say_changes(before, after, free=FREE)) == changes


def test_windows_of_several_processes_are_joined():
    first, second, joined = Window(), Window(), Window()
    first.add_batch({"loss": 1.0}, 3)
    second.add_batch({"loss": 5.0, "accuracy": 1.0}, 1)
    joined.add_sums(first.sums)
    joined.add_sums(second.take_sums())
    assert joined.take_means() == {"loss": 2.0, "accuracy": 1.0}
    assert (first.take_means(), second.take_means()) == ({"loss": 1.0}, {})


def test_a_run_that_goes_on_has_each_step_once(tmp_path):
    path = tmp_path / "metrics.parquet"
    metrics = MetricsFile(path)
    for step in (1, 2, 3):
        metrics.add_values(step, step / 10, TRAIN, {"loss": float(step)})
    metrics.add_values(2, 0.2, HELD_OUT, {"loss": 9.0})
    metrics.write_file()
    again = MetricsFile(path)
    again.read_until(2)
    assert again.is_logged(2, HELD_OUT)
    assert not again.is_logged(3, TRAIN)
    assert not again.is_logged(1, HELD_OUT)
    again.add_values(3, 0.3, TRAIN, {"loss": 4.0})
    again.write_file()
    rows = [(row["step"], row["split"], row["value"]) for row in pq.read_table(path).to_pylist()]
    assert rows == [(1, TRAIN, 1.0), (2, TRAIN, 2.0), (2, HELD_OUT, 9.0), (3, TRAIN, 4.0)]
    assert (again.last(TRAIN), again.last(HELD_OUT)) == ({"loss": 4.0}, {"loss": 9.0})


def test_an_empty_file_and_none_and_a_broken_one(tmp_path, caplog):
    metrics = MetricsFile(tmp_path / "metrics.parquet")
    metrics.read_until(5)
    metrics.write_file()
    metrics.read_until(5)
    assert (metrics.entries, metrics.last(TRAIN), caplog.text) == ([], {}, "")
    metrics.path.write_bytes(b"PAR1 broken")
    metrics.read_until(5)
    assert "metrics.parquet" in caplog.text
