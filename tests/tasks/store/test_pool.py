"""Worker processes: their faults become records, and no shard is lost with one of them."""

import logging
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.errors import ServerError
from pairwright.tasks.store.executor import DIED, Outcome, ShardFailed
from pairwright.tasks.store.pool import HELPERS, PLACE, Workers
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned
from tests.tasks.store.toy import planned_items, shard_of

PLANNED = planned_items()


def act(planned: Planned, shard: ShardRef) -> ShardDone:
    """Do what the shard's name says; "once" acts the first time only."""
    what, _, _ = shard.name.partition("-")
    first = Path(shard.journals) / shard.name
    if not first.exists() or "once" not in what:
        first.touch()
        if "die" in what:
            os.kill(os.getpid(), signal.SIGKILL)
        if "server" in what:
            raise ServerError("http://here does not answer")
        if "bug" in what:
            raise ZeroDivisionError("a bug")
        if "say" in what:
            logging.getLogger("pairwright.toy").info("listed %d images", 3)
        if "wait" in what:
            time.sleep(60)
    return ShardDone(name=shard.name, part=str(os.getpid()), counts={"ok": 1})


def submit(
    workers: Workers, folder: Path, *names: str, planned: Planned = PLANNED
) -> list[Outcome]:
    shards = [shard_of(folder, f"{name}-{number}") for number, name in enumerate(names)]
    return list(workers.submit(planned, shards))


def ends(outcomes: list[Outcome]) -> dict[str, str]:
    """Return how each shard ended."""
    return {
        each.shard.name: each.result.error if isinstance(each.result, ShardFailed) else "done"
        for each in outcomes
    }


@pytest.mark.parametrize("count", [1, 2])
def test_a_fault_is_recorded_and_the_other_shards_go_on(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Workers(count, act) as workers, caplog.at_level(logging.CRITICAL):
        outcomes = submit(workers, tmp_path, "ok", "server", "bug", "ok")
    assert ends(outcomes) == {
        "ok-0": "done",
        "server-1": "http://here does not answer",
        "bug-2": "ZeroDivisionError: a bug",
        "ok-3": "done",
    }
    assert all(outcome.seconds < 60 for outcome in outcomes)


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_worker_logs_is_logged_here_once(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Workers(count, act) as workers, caplog.at_level(logging.INFO, "pairwright"):
        submit(workers, tmp_path, "ok", "say", "bug")
        logging.getLogger("pairwright").setLevel(logging.WARNING)
        submit(workers, tmp_path, "say")
    info, failed = sorted(caplog.records, key=lambda record: record.levelno)
    assert (info.name, info.levelname) == ("pairwright.toy", "INFO")
    assert info.getMessage() == "listed 3 images"
    assert "bug-2" in failed.getMessage()
    assert "ZeroDivisionError" in caplog.text


def test_a_worker_that_dies_takes_no_other_shard_with_it(tmp_path: Path) -> None:
    with Workers(2, act) as workers:
        once = ends(submit(workers, tmp_path, "ok", "die_once", "ok", "ok"))
        always = ends(submit(workers, tmp_path, "ok", "die", "ok"))
        after = ends(submit(workers, tmp_path, "ok"))
    assert once == {"ok-0": "done", "die_once-1": "done", "ok-2": "done", "ok-3": "done"}
    assert always == {"ok-0": "done", "die-1": DIED, "ok-2": "done"}
    assert after == {"ok-0": "done"}


def stop_after_the_first(folder: Path) -> None:
    shards = [shard_of(folder, name) for name in ("ok-0", "wait-1", "wait-2", "wait-3")]
    with Workers(2, act) as workers:
        for _ in workers.submit(PLANNED, shards):
            raise KeyboardInterrupt


def test_leaving_with_an_error_stops_the_workers_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        stop_after_the_first(tmp_path)
    assert time.monotonic() - start < 30


def where(planned: Planned, shard: ShardRef) -> ShardDone:
    """Return this process, its place in the pool and its helpers, once all have come.

    The shard's name says how many processes have to come, so that each gets a turn.
    """
    processes, _, _ = shard.name.partition("-")
    arrived = Path(shard.journals) / planned.stage.name
    arrived.mkdir(exist_ok=True)
    (arrived / str(os.getpid())).touch()
    deadline = time.monotonic() + 30
    while len(list(arrived.iterdir())) < int(processes) and time.monotonic() < deadline:
        time.sleep(0.02)
    text = f"{os.getpid()} {os.environ[PLACE]} {os.environ[HELPERS]}"
    return ShardDone(name=shard.name, part=text, counts={})


def places(outcomes: list[Outcome]) -> list[tuple[int, int, int]]:
    """Return the process, place and helpers of each shard."""
    return sorted(tuple(int(word) for word in each.result.part.split()) for each in outcomes)


def processes_of(outcomes: list[Outcome]) -> set[int]:
    return {process for process, _, _ in places(outcomes)}


def answer(processes: int, config: object) -> int:
    return processes


def with_models(processes: int) -> Planned:
    return planned_items("with-models", processes=partial(answer, processes))


def test_a_model_stage_has_one_process_per_device(tmp_path: Path) -> None:
    with Workers(5, where) as workers:
        common = submit(workers, tmp_path, *["5"] * 10)
        devices = submit(workers, tmp_path, *["2"] * 6, planned=with_models(2))
        living = [pid for pid in processes_of(devices) if Path(f"/proc/{pid}").exists()]
        again = submit(workers, tmp_path, *["1"] * 2)
    assert living == [], "their devices' memory is free"
    # Two devices: two processes, numbered, and one helper for each from the three workers left.
    assert {(place, helpers) for _, place, helpers in places(devices)} == {(0, 1), (1, 1)}
    assert len(processes_of(devices)) == 2
    assert {place for _, place, _ in places(common)} == set(range(5))
    assert {helpers for _, _, helpers in places(common)} == {0}
    assert processes_of(devices).isdisjoint(processes_of(common))
    assert processes_of(again) <= processes_of(common)


def test_with_one_worker_only_device_stages_have_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, "0")
    monkeypatch.setenv(HELPERS, "0")
    with Workers(1, where) as workers:
        here = processes_of(submit(workers, tmp_path, "1", planned=with_models(0)))
        apart = processes_of(submit(workers, tmp_path, "2", planned=with_models(1)))
    assert here == {os.getpid()}
    assert os.getpid() not in apart
    assert len(apart) == 1
