"""Whole builds of the toy line: what is owed when the source, the configuration or the machine
changes."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.executor import ShardFailed
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import write_items
from pairwright.tasks.store.part import Part, read_about
from tests.tasks.store.forge import ALL_DONE, Forge
from tests.tasks.store.toy import (
    STAGES,
    ToyConfig,
    build_toy,
    check,
    items_of,
    list_words,
    read_tree,
    take_calls,
)

WORDS = [f"{letter}{number}" for letter in "abc" for number in range(6)] + ["bad", "a1/again"]


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    with Forge() as forge:
        yield forge


@pytest.fixture
def config(tmp_path: Path) -> ToyConfig:
    return ToyConfig(calls=str(tmp_path / "calls"), trouble=str(tmp_path / "trouble"))


def test_a_build_gives_the_expected_rows_and_a_second_one_does_nothing(
    tmp_path: Path, config: ToyConfig
) -> None:
    counts, _ = build_toy(tmp_path / "out", WORDS, config)
    check(tmp_path / "out", WORDS)
    images, *_, notes = counts
    assert (images.of, images.ok, images.dropped, images.failed, images.pending, images.rows) == (
        20,
        18,
        2,
        0,
        0,
        18,
    )
    assert images.reasons == {"bad word": 1, "duplicate of another row": 1}
    assert (notes.of, notes.ok, notes.rows) == (17, 17, 17)
    tree = read_tree(tmp_path / "out")
    take_calls(config)
    again, outcomes = build_toy(tmp_path / "out", WORDS, config)
    assert (again, outcomes, take_calls(config)) == (counts, [], [])
    assert read_tree(tmp_path / "out") == tree


def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    trees = []
    for workers in (1, 3):
        _, outcomes = build_toy(tmp_path / str(workers), WORDS, rows_per_shard=3, workers=workers)
        assert not [outcome for outcome in outcomes if isinstance(outcome.result, ShardFailed)]
        trees.append(read_tree(tmp_path / str(workers)))
    assert trees[0] == trees[1]


@pytest.mark.parametrize("sizes", [(7, 2), (1, 100)])
def test_another_shard_size_after_a_kill_gives_the_same_rows(
    tmp_path: Path, config: ToyConfig, forge: Forge, sizes: tuple[int, int]
) -> None:
    slow = config.model_copy(update={"seconds_per_row": 0.01})
    process = forge.start(tmp_path / "out", WORDS, slow, rows_per_shard=sizes[0])
    while len(list(tmp_path.rglob("tables/images/*/part-*.parquet"))) < 2:
        time.sleep(0.002)
    os.killpg(process, signal.SIGKILL)
    assert forge.wait(process) == -signal.SIGKILL
    before = len(take_calls(config))
    build_toy(tmp_path / "out", WORDS, config, rows_per_shard=sizes[1])
    check(tmp_path / "out", WORDS)
    assert before + len(items_of(take_calls(config))) <= len(WORDS) + sizes[0] + 1


def test_only_new_work_is_done_when_items_come_and_go(tmp_path: Path, config: ToyConfig) -> None:
    out = tmp_path / "out"
    build_toy(out, WORDS, config)
    take_calls(config)
    # "b7" comes before "c0" and after "b5"; its neighbour c0 is as before, but b5's changes.
    added = [*WORDS[:7], "b7", *WORDS[7:]]
    build_toy(out, added, config)
    check(out, added)
    calls = take_calls(config)
    assert items_of(calls) == ["b7"]
    assert Counter(call.split()[0] for call in calls) == {"item": 1, "link": 2, "note": 2}
    removed = [word for word in added if word != "b7"]
    build_toy(out, removed, config)
    check(out, removed)
    assert take_calls(config) == []
    build_toy(out, added, config)
    check(out, added)
    assert take_calls(config) == []


def test_a_duplicate_takes_the_place_of_a_removed_one(tmp_path: Path, config: ToyConfig) -> None:
    out, twins = tmp_path / "out", ["x/1", "x/2", "y"]
    for words in (twins, ["x/1", "y"], ["x/2", "y"], twins):
        counts, _ = build_toy(out, words, config)
        check(out, words)
        assert (counts[0].ok, counts[0].dropped) == (2, len(words) - 2)
    calls = take_calls(config)
    assert items_of(calls) == twins
    assert len(calls) == 3 + 2 + 1


@pytest.mark.parametrize("rows_per_shard", [1, 100])
def test_rows_that_fail_are_tried_again_and_later_stages_catch_up(
    tmp_path: Path, config: ToyConfig, rows_per_shard: int
) -> None:
    out, words = tmp_path / "out", ["a", "failing1", "failing2", "k", "z"]
    Path(config.trouble).touch()
    for _ in range(2):
        counts, _ = build_toy(out, words, config, rows_per_shard=rows_per_shard)
        check(out, words, failed=["failing1", "failing2"])
        assert (counts[0].ok, counts[0].failed, counts[0].reasons) == (3, 2, {"trouble": 2})
    Path(config.trouble).unlink()
    take_calls(config)
    counts, _ = build_toy(out, words, config, rows_per_shard=rows_per_shard)
    assert (counts[0].ok, counts[0].failed) == (5, 0)
    check(out, words)
    assert items_of(take_calls(config)) == ["failing1", "failing2"]
    assert build_toy(out, words, config, rows_per_shard=rows_per_shard) == (counts, [])


def test_two_builds_at_once_do_each_row_once(
    tmp_path: Path, config: ToyConfig, forge: Forge
) -> None:
    slow = config.model_copy(update={"seconds_per_row": 0.005})
    builds = [forge.start(tmp_path / "out", WORDS, slow, rows_per_shard=3) for _ in range(2)]
    assert [forge.wait(build) for build in builds] == [ALL_DONE, ALL_DONE]
    calls = Counter(take_calls(config))
    assert set(calls.values()) == {1}
    assert len(items_of(list(calls))) == len(WORDS)
    check(tmp_path / "out", WORDS)
    build_toy(tmp_path / "one", WORDS, rows_per_shard=3)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "one")
    assert len(list(tmp_path.glob("out/snapshots/*.json"))) == 1


def _living(group: int) -> list[str]:
    """Return the command lines of a group's processes that still run (zombies have none)."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (path / "stat").read_text().rpartition(") ")[2].split()[2] == str(group):
                lines.append((path / "cmdline").read_text())
    return [line for line in lines if line]


def test_orphans_of_a_killed_build_end(tmp_path: Path, config: ToyConfig, forge: Forge) -> None:
    """Only the build is killed, not its workers: they end by themselves, and the next build does
    not wait for long."""
    slow = config.model_copy(update={"seconds_per_row": 60.0})
    process = forge.start(tmp_path / "out", WORDS, slow, workers=2)
    while len(list(tmp_path.glob("out/journals/*/*.journal"))) < 2:
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    forge.wait(process)
    start = time.monotonic()
    build_toy(tmp_path / "out", WORDS)
    assert time.monotonic() - start < 30
    check(tmp_path / "out", WORDS)
    deadline = time.monotonic() + 30
    while _living(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _living(process) == []


def test_a_damaged_part_is_named_and_once_deleted_made_anew(tmp_path: Path) -> None:
    build_toy(tmp_path, WORDS, rows_per_shard=4)
    tree = read_tree(tmp_path)
    path = min(tmp_path.glob("tables/pairs/*/part-*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=path.name):
        build_toy(tmp_path, WORDS, rows_per_shard=4)
    path.unlink()
    build_toy(tmp_path, WORDS, rows_per_shard=4)
    assert read_tree(tmp_path) == tree


def test_equal_listings_give_equal_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairwright.tasks.store.open_tables.ITEMS_PER_PART", 7)
    folder = Folder(str(tmp_path))
    names = write_items(folder, list_words(WORDS))
    assert [read_about(Part(folder, name))["rows"] for name in names] == ["7", "7", "6"]
    assert write_items(folder, list_words(WORDS)) == names
    build_toy(tmp_path, WORDS, rows_per_shard=4)
    check(tmp_path, WORDS)


def test_a_killed_build_under_another_fingerprint_lends_no_rows(
    tmp_path: Path, config: ToyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same items, another version: what an unfinished journal holds is not taken over."""

    def stop(*args: object) -> pa.Table:
        raise KeyboardInterrupt

    with monkeypatch.context() as patches:
        patches.setattr("pairwright.tasks.store.shard._in_order", stop)
        with pytest.raises(KeyboardInterrupt):
            build_toy(tmp_path / "out", WORDS, config)
    assert len(items_of(take_calls(config))) == 10
    newer = (replace(STAGES[0], version=2),)
    build_toy(tmp_path / "out", WORDS, config, stages=newer)
    assert len(items_of(take_calls(config))) == len(WORDS)
    build_toy(tmp_path / "out", WORDS, config, stages=STAGES[:1])
    assert len(items_of(take_calls(config))) == len(WORDS) - 10
