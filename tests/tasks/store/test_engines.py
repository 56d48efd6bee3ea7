"""Builds on a real Dask cluster of two workers, one of which is killed in mid-shard."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pairwright.schemas.config import RunConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.store.executor import Outcome
from pairwright.tasks.store.on_dask import DaskWorkers, code_mark, run_here
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned
from tests.tasks.store.toy import (
    STAGES,
    ToyConfig,
    build_toy,
    check,
    failures,
    planned_items,
    read_tree,
    read_words,
    shard_of,
)

ROOT = Path(__file__).parents[3]
WORDS = [*"abcdefghij", "killing", "bad"]


def read_and_die(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[Any]:
    """Read words; the process that comes to "killing" first is killed there."""
    flag = Path(config.calls).with_name("killed")
    for row in rows:
        if row.name == "killing" and not flag.exists():
            flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        yield from read_words([row], config)


@pytest.mark.slow
def test_a_worker_killed_in_mid_shard_costs_no_row_and_none_is_done_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = ToyConfig(calls=str(tmp_path / "calls"))
    stages = (replace(STAGES[0], function=read_and_die), *STAGES[1:])
    with DaskWorkers(RunConfig(workers=2), paths=[str(ROOT)]) as engine:
        counts, outcomes = build_toy(
            tmp_path / "out", WORDS, config, rows_per_shard=3, workers=engine, stages=stages
        )
        assert engine.count == 2
    assert failures(outcomes) == []
    assert {count.failed + count.pending for count in counts} == {0}
    killed = int((tmp_path / "killed").read_text())
    assert killed != os.getpid()
    (message,) = [log.getMessage() for log in caplog.records if log.name.startswith("distributed")]
    assert message.startswith(
        f"Worker process {killed} was killed by signal 9: its shard is run again"
    )
    calls = Counter(Path(config.calls).read_text().splitlines())
    # The journal of the killed shard has all but the row before, whose results may have been
    # incomplete.
    assert set(calls) >= {f"item {word}" for word in WORDS}
    assert [word for word, times in calls.items() if times > 1] in ([], ["item j"])
    build_toy(tmp_path / "local", WORDS, rows_per_shard=3)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "local")
    check(tmp_path / "out", WORDS)


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"run\.runner dask: .*pip install .*\[dask\]"):
        DaskWorkers(RunConfig())


def test_a_cluster_that_does_not_start_says_why() -> None:
    code = """
from pairwright.schemas.config import RunConfig
from pairwright.tasks.store.on_dask import DaskWorkers
DaskWorkers(RunConfig(workers=1))
"""
    refusing = {**os.environ, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=refusing
    )
    assert done.returncode == 1
    assert re.search(r"ConfigError: run\.runner dask: .*encryption", done.stderr)


def planned(name: str, processes: int | None = None) -> Planned:
    return planned_items(name, processes=lambda config: processes)


def done(planned: Planned, shard: ShardRef) -> ShardDone:
    return ShardDone(name=shard.name, part="", counts={})


def error(outcome: Outcome) -> str:
    return "".join(failures([outcome]))


def test_worker_without_folder_or_with_other_code_does_nothing(tmp_path: Path) -> None:
    shard, away = shard_of(tmp_path, "toy-0"), str(tmp_path / "away")
    fine = run_here(done, planned("a"), shard, code=code_mark(), paths=[str(tmp_path)])
    assert error(fine) == ""
    assert away in error(run_here(done, planned("a"), shard, paths=[away]))
    assert "code" in error(run_here(done, planned("a"), shard, code="of another commit"))


def test_a_worker_of_many_threads_runs_one_shard_at_a_time(tmp_path: Path) -> None:
    running: list[int] = []
    most: list[int] = []

    def work(planned: Planned, shard: ShardRef) -> ShardDone:
        running.append(threading.get_ident())
        most.append(len(running))
        time.sleep(0.05)
        running.pop()
        return done(planned, shard)

    shard = shard_of(tmp_path, "toy-0")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: run_here(work, planned("a"), shard), range(8)))
    assert most == [1] * 8


def test_models_stay_from_shard_to_shard_and_go_for_those_of_another_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    module = ModuleType("pairwright.tasks.models.made_up")
    module.load = load = lru_cache(maxsize=1)(lambda: loaded.append("model"))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def work(planned: Planned, shard: ShardRef) -> ShardDone:
        load()
        return done(planned, shard)

    stages = [("a", 1), ("a", 1), ("between", None), ("a", 1), ("b", 1), ("b", 0), ("a", 1)]
    for name, processes in stages:
        run_here(work, planned(name, processes), shard_of(tmp_path, "toy-0"))
    assert len(loaded) == 3  # for a, for b, for a again
