"""Builds on a real Dask cluster of two workers, one of which is killed in mid-shard."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.store.on_dask import DaskWorkers, Needs, Place, needs_of
from pairwright.tasks.store.pool import Runner, ShardFailed
from tests.tasks.store.toy import STAGES, ToyConfig, build_toy, expect, read_toy, read_tree, read_words, say

ROOT = Path(__file__).parent.parent.parent.parent
WORDS = [*"abcdefghij", "killing", "bad"]
TWO = Place(workers=2, memory_gb_of={})


def read_and_die(rows: Sequence[ItemRow], config: ToyConfig) -> Iterator[Any]:
    """Read words; the process that comes to "killing" first is killed there."""
    flag = Path(config.calls).with_name("killed")
    for row in rows:
        if row.name == "killing" and not flag.exists():
            flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        yield from read_words([row], config)


@pytest.fixture(scope="module")
def engine() -> Iterator[Runner]:
    with DaskWorkers(TWO, needs_of([str(ROOT)], elsewhere=False)) as workers:
        yield workers


@pytest.mark.slow
def test_a_worker_killed_in_mid_shard_costs_no_row_and_none_is_done_twice(engine: Runner, tmp_path: Path) -> None:
    config = ToyConfig(calls=str(tmp_path / "calls"))
    stages = (replace(STAGES[0], function=read_and_die), *STAGES[1:])
    counts, outcomes = build_toy(tmp_path / "out", WORDS, config, rows_per_shard=3, workers=engine, stages=stages)
    assert engine.count == 2
    assert not [outcome.result for outcome in outcomes if isinstance(outcome.result, ShardFailed)]
    assert {count.failed + count.pending for count in counts} == {0}
    killed = int((tmp_path / "killed").read_text())
    assert killed != os.getpid()
    calls = Counter(Path(config.calls).read_text().splitlines())
    # The journal of the killed shard has all but the row before, whose results may have been incomplete.
    assert set(calls) >= {f"item {word}" for word in WORDS}
    assert [word for word, times in calls.items() if times > 1] in ([], ["item j"])
    build_toy(tmp_path / "local", WORDS, rows_per_shard=3)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "local")
    assert {name: set(rows) for name, rows in say(read_toy(tmp_path / "out", WORDS)).items()} == expect(WORDS)


def test_a_worker_that_is_not_fit_does_nothing(engine: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_needs", Needs("of another release", ()))
    counts, outcomes = build_toy(tmp_path / "out", WORDS, workers=engine, stages=STAGES[:1])
    assert counts[0].pending == len(WORDS)
    errors = {outcome.result.error for outcome in outcomes if isinstance(outcome.result, ShardFailed)}
    assert [": it has other code" in error for error in errors] == [True]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"run\.runner dask: .*pip install -c constraints\.txt -e '\.\[dask\]'"):
        DaskWorkers(TWO, needs_of([], elsewhere=False))
