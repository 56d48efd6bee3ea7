"""Worker processes: their faults become records, and no shard is lost with one of them."""

import logging
import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pairwright.schemas.errors import ServerError
from pairwright.schemas.rows import ItemRow
from pairwright.schemas.section import Section
from pairwright.tasks.store.executor import DIED, Outcome, ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import HELPERS, PLACE, Workers
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned, Stage

STAGE = Stage(
    name="toy",
    version=1,
    group="sources",
    reads={"items": ItemRow},
    writes=ItemRow,
    function=iter,
    config=Section,
)
PLANNED = Planned(stage=STAGE, config=None, inputs=STAGE.inputs(None), fingerprint="0")


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
        if "stop" in what:
            raise KeyboardInterrupt
        if "wait" in what:
            time.sleep(60)
    return ShardDone(name=shard.name, part=str(os.getpid()), counts={"ok": 1})


def _shards(folder: Path, *names: str) -> list[ShardRef]:
    options = {"plan": "", "start": 0, "stop": 1, "indexes": (), "journals": str(folder)}
    return [
        ShardRef(folder=Folder(str(folder)), name=f"{name}-{n}", **options)
        for n, name in enumerate(names)
    ]


def _results(outcomes: list[Outcome]) -> dict[str, str]:
    return {
        o.shard.name: o.result.error if isinstance(o.result, ShardFailed) else "done"
        for o in outcomes
    }


@pytest.mark.parametrize("count", [1, 2])
def test_a_fault_is_recorded_and_the_other_shards_go_on(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Workers(count, act) as workers, caplog.at_level(logging.CRITICAL):
        outcomes = list(workers.submit(PLANNED, _shards(tmp_path, "ok", "server", "bug", "ok")))
    assert _results(outcomes) == {
        "ok-0": "done",
        "server-1": "http://here does not answer",
        "bug-2": ("ZeroDivisionError: a bug"),
        "ok-3": "done",
    }
    assert all(outcome.seconds < 60 for outcome in outcomes)


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_worker_logs_is_logged_here_once(
    tmp_path: Path, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    with Workers(count, act) as workers, caplog.at_level(logging.INFO, "pairwright"):
        list(workers.submit(PLANNED, _shards(tmp_path, "ok", "say", "bug")))
        logging.getLogger("pairwright").setLevel(logging.WARNING)
        list(workers.submit(PLANNED, _shards(tmp_path, "say")))
    said, failed = sorted(caplog.records, key=lambda record: record.levelno)
    assert (said.name, said.levelno, said.getMessage()) == (
        "pairwright.toy",
        logging.INFO,
        "listed 3 images",
    )
    assert "bug-2" in failed.getMessage()
    assert "ZeroDivisionError" in caplog.text


def test_a_worker_that_dies_takes_no_other_shard_with_it(tmp_path: Path) -> None:
    with Workers(2, act) as workers:
        for names in (["ok", "die_once", "ok", "ok"], ["ok", "die", "ok"], ["ok"]):
            outcomes = list(workers.submit(PLANNED, _shards(tmp_path, *names)))
            right = {
                f"{name}-{n}": DIED if name == "die" else "done" for n, name in enumerate(names)
            }
            assert _results(outcomes) == right


def _leave_after_the_first(shards: list[ShardRef]) -> None:
    with Workers(2, act) as workers:
        for _ in workers.submit(PLANNED, shards):
            raise KeyboardInterrupt


def test_leaving_with_an_error_stops_the_workers_at_once(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _leave_after_the_first(_shards(tmp_path, "ok", "wait", "wait", "wait"))
    assert time.monotonic() - start < 30


def where(planned: Planned, shard: ShardRef) -> ShardDone:
    """Return this process, its place in its pool and the number of helpers it may have.

    Waits until as many processes as the shard's name says have come, so that each gets a turn.
    """
    wanted, _, _ = shard.name.partition("-")
    here = Path(shard.journals) / planned.stage.name
    here.mkdir(exist_ok=True)
    (here / str(os.getpid())).touch()
    deadline = time.monotonic() + 30
    while len(list(here.iterdir())) < int(wanted) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ShardDone(
        name=shard.name, part=f"{os.getpid()} {os.environ[PLACE]} {os.environ[HELPERS]}", counts={}
    )


def _parts(outcomes: list[Outcome]) -> list[list[int]]:
    return sorted(
        [int(word) for word in o.result.part.split()]
        for o in outcomes
        if isinstance(o.result, ShardDone)
    )


def _own(processes: int | None) -> Planned:
    stage = replace(STAGE, name="with-models", processes=partial(_say, processes))
    return Planned(stage=stage, config=None, inputs=stage.inputs(None), fingerprint="0")


def _say(processes: int | None, config: object) -> int | None:
    return processes


def test_model_stage_has_one_process_per_device(
    tmp_path: Path,
) -> None:
    with Workers(5, where) as workers:
        common = _parts(list(workers.submit(PLANNED, _shards(tmp_path, *["5"] * 10))))
        own = _parts(list(workers.submit(_own(2), _shards(tmp_path, *["2"] * 6))))
        assert not any(
            Path(f"/proc/{pid}").exists() for pid, _, _ in own
        )  # and their devices' memory is free
        again = _parts(list(workers.submit(PLANNED, _shards(tmp_path, *["1"] * 2))))
    # Two devices: two processes, numbered, and one helper for each from the three workers that are
    # left.
    assert {(place, number) for _, place, number in own} == {(0, 1), (1, 1)}
    assert len({pid for pid, _, _ in own}) == 2
    assert {place for _, place, _ in common} == set(range(5))
    assert {number for _, _, number in common} == {0}
    assert not {pid for pid, _, _ in own} & {pid for pid, _, _ in common}
    assert {pid for pid, _, _ in again} <= {pid for pid, _, _ in common}


def test_with_one_worker_only_device_stages_have_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLACE, "0")
    monkeypatch.setenv(HELPERS, "0")
    with Workers(1, where) as workers:
        ((here, *_),) = _parts(list(workers.submit(_own(0), _shards(tmp_path, "1"))))
        ((apart, *_),) = _parts(list(workers.submit(_own(1), _shards(tmp_path, "2"))))
    assert here == os.getpid() != apart
