"""Cut the power 1,000 times, and let every writing system call of a build fail in every way.

Run with ``make soak``; about an hour on one core. What is counted is printed (``make soak
ARGS=-s``).
"""

from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.executor import ShardFailed
from tests.tasks.store.faults import Killed, faulty
from tests.tasks.store.test_power_loss import Life, cut, live
from tests.tasks.store.toy import STAGES, build_toy, check, read_tree

pytestmark = pytest.mark.slow
CUTS = 1_000
WORDS = ["a", "b", "bad", "c", "d"]
FAULTS = ("ENOSPC", "full", "EIO", "kill", "late kill")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return live(tmp_path_factory.mktemp("whole") / "data")


@pytest.mark.parametrize("start", range(1_000, 1_000 + CUTS, 100))
def test_no_order_of_what_was_not_flushed_loses_or_doubles_a_row(
    life: Life, tmp_path: Path, start: int
) -> None:
    for seed in range(start, start + 100):
        cut(life, tmp_path / "cut", seed)
    print(
        f"power cut 100 times among {life.disk.moment} moments: nothing lost, doubled or unreadable"
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_at_any_call_loses_or_doubles_a_row(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_toy(tmp_path / "undisturbed", WORDS, rows_per_shard=3, stages=STAGES)
    tree, seen = read_tree(tmp_path / "undisturbed"), Counter[str]()
    for at in count():
        root = tmp_path / str(at)
        with faulty(monkeypatch, fault, at) as system:
            try:
                seen[_build(root)] += 1
            except Killed:
                seen["killed"] += 1
        if not system.triggered:
            break
        assert _build(root) == "done"
        check(root, WORDS)
        if "kill" in fault:
            assert read_tree(root) == tree
    print(f"{fault}: {at} points, of which {dict(seen)}")
    assert at > 100


def _build(root: Path) -> str:
    """Build; return how it ended."""
    try:
        _, outcomes = build_toy(root, WORDS, rows_per_shard=3)
    except StoreError:
        return "refused"
    return (
        "shard failed" if any(isinstance(one.result, ShardFailed) for one in outcomes) else "done"
    )
