"""Builds in processes of their own: killed by SIGKILL and resumed, orphaned, or two at once.

Kills at every system call are in ``test_dataset_faults``, of whole builds in ``make soak``.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.tasks.store.forge import ALL_DONE, Forge
from tests.tasks.store.toy import ToyConfig, build_toy, check, items_of, read_tree, take_calls

NUMBERED = [f"{letter}{number}" for letter in "abc" for number in range(8)]
WORDS = [*NUMBERED, "bad", "a1/again", "b2/again"]
ROWS_PER_SHARD = 5
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    with Forge() as forge:
        yield forge


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the tables of a build that nobody disturbed."""
    root = tmp_path_factory.mktemp("unkilled")
    build_toy(root, WORDS, rows_per_shard=ROWS_PER_SHARD)
    return read_tree(root)


@pytest.fixture
def slow(tmp_path: Path) -> Callable[[float], ToyConfig]:
    """Return settings of a build that takes so many seconds per row."""
    return lambda seconds: ToyConfig(calls=str(tmp_path / "calls"), seconds_per_row=seconds)


def test_another_shard_size_after_a_kill_gives_the_same_rows(
    tmp_path: Path, slow: Callable[[float], ToyConfig], forge: Forge
) -> None:
    config = slow(0.01)
    process = forge.start(tmp_path / "out", WORDS, config, rows_per_shard=7)
    while len(list(tmp_path.rglob("tables/images/*/part-*.parquet"))) < 2:
        time.sleep(0.002)
    os.killpg(process, signal.SIGKILL)
    assert forge.wait(process) == KILLED
    before = len(take_calls(config))
    build_toy(tmp_path / "out", WORDS, slow(0), rows_per_shard=2)
    check(tmp_path / "out", WORDS)
    assert before + len(items_of(take_calls(config))) <= len(WORDS) + 7 + 1
    assert len(list(tmp_path.glob("out/snapshots/*.json"))) == 1
    assert not list(tmp_path.glob("out/journals/*/*"))
    assert not [path for path in tmp_path.glob("out/work/*") if path.is_dir()]


def test_two_builds_at_once_do_each_row_once(
    tmp_path: Path, slow: Callable[[float], ToyConfig], forge: Forge, unkilled: dict[str, bytes]
) -> None:
    config, options = slow(0.005), {"rows_per_shard": ROWS_PER_SHARD}
    builds = [forge.start(tmp_path / "out", WORDS, config, **options) for _ in range(2)]
    assert [forge.wait(build) for build in builds] == [ALL_DONE, ALL_DONE]
    calls = take_calls(config)
    assert len(calls) == len(set(calls))
    assert len(items_of(calls)) == len(WORDS)
    check(tmp_path / "out", WORDS)
    assert read_tree(tmp_path / "out") == unkilled
    assert len(list(tmp_path.glob("out/snapshots/*.json"))) == 1


def living(group: int) -> list[str]:
    """Return the command lines of a group's processes that still run (zombies have none)."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (path / "stat").read_text().rpartition(") ")[2].split()[2] == str(group):
                lines.append((path / "cmdline").read_text())
    return [line for line in lines if line]


def test_orphans_of_a_killed_build_end(
    tmp_path: Path, slow: Callable[[float], ToyConfig], forge: Forge
) -> None:
    """Only the build is killed, not its workers; the next build does not wait long for them."""
    out, few = tmp_path / "out", WORDS[:6]
    process = forge.start(out, few, slow(60), rows_per_shard=3, workers=2)
    while len(list(out.glob("journals/*/*.journal"))) < 2:
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    forge.wait(process)
    start = time.monotonic()
    build_toy(out, few, rows_per_shard=3)
    assert time.monotonic() - start < 30
    check(out, few)
    deadline = time.monotonic() + 30
    while living(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(process) == []
