"""What a worker of a cluster does beside its shard: refuse what it is not fit for, make room for models."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest

from pairwright.schemas.rows import ItemRow
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.on_dask import Needs, code_mark, needs_of, run_here
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned, Stage

STAGE = Stage(name="toy", version=1, group="sources", reads={"items": ItemRow}, writes=ItemRow, function=iter,
              config="toy")  # fmt: skip
FIT = Needs("", ())


def planned(name: str, processes: int | None = None) -> Planned:
    return Planned(stage=replace(STAGE, name=name, processes=lambda config: processes), config=None, fingerprint="0")


def shard(folder: Path) -> ShardRef:
    return ShardRef(
        folder=Folder(str(folder)), name="toy-0", plan="", start=0, stop=1, indexes=(), journals=str(folder)
    )


def done(planned: Planned, shard: ShardRef) -> ShardDone:
    return ShardDone(name=shard.name, part="", counts={})


def error(outcome: Outcome) -> str:
    return outcome.result.error if isinstance(outcome.result, ShardFailed) else ""


def test_a_worker_that_does_not_see_a_folder_or_has_other_code_does_nothing(tmp_path: Path) -> None:
    assert needs_of([str(tmp_path)], elsewhere=True) == Needs(code_mark(), (str(tmp_path),))
    assert not error(run_here(done, planned("a"), shard(tmp_path), needs_of([str(tmp_path)], elsewhere=True)))
    away = tmp_path / "away"
    assert str(away) in error(run_here(done, planned("a"), shard(tmp_path), needs_of([str(away)], elsewhere=False)))
    assert "code" in error(run_here(done, planned("a"), shard(tmp_path), Needs("of another commit", ())))


def test_a_worker_of_many_threads_runs_one_shard_at_a_time(tmp_path: Path) -> None:
    running: list[int] = []
    most: list[int] = []

    def work(planned: Planned, shard: ShardRef) -> ShardDone:
        running.append(threading.get_ident())
        most.append(len(running))
        time.sleep(0.05)
        running.pop()
        return done(planned, shard)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: run_here(work, planned("a"), shard(tmp_path), FIT), range(8)))
    assert most == [1] * 8


def test_models_stay_from_shard_to_shard_and_go_for_those_of_another_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    module = ModuleType("pairwright.tasks.models.made_up")

    @lru_cache(maxsize=1)
    def load() -> str:
        loaded.append("model")
        return "model"

    module.load = load
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def work(planned: Planned, shard: ShardRef) -> ShardDone:
        load()
        return done(planned, shard)

    for name, processes in [("a", 1), ("a", 1), ("between", None), ("a", 1), ("b", 1), ("b", 0), ("a", 1)]:
        run_here(work, planned(name, processes), shard(tmp_path), FIT)
    assert len(loaded) == 3  # for a, for b, for a again
