"""Whole builds of the toy line: unfinished rows after changes of source, settings or machine."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import write_items
from pairwright.tasks.store.part import Part, read_about
from tests.tasks.store.faults import Killed
from tests.tasks.store.toy import (
    STAGES,
    ToyConfig,
    build_toy,
    check,
    failures,
    items_of,
    list_words,
    live_rows,
    read_tree,
    take_calls,
    toy_version,
)

WORDS = [f"{letter}{number}" for letter in "abc" for number in range(6)] + ["bad", "a1/again"]


@pytest.fixture
def config(tmp_path: Path) -> ToyConfig:
    return ToyConfig(calls=str(tmp_path / "calls"), trouble=str(tmp_path / "trouble"))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_build_gives_the_expected_rows_and_a_second_does_nothing(
    out: Path, config: ToyConfig
) -> None:
    counts, _ = build_toy(out, WORDS, config)
    check(out, WORDS)
    images, *_, notes = counts
    assert (images.of, images.ok, images.rows) == (20, 18, 18)
    assert (images.dropped, images.failed, images.pending) == (2, 0, 0)
    assert images.reasons == {"bad word": 1, "duplicate of another row": 1}
    assert (notes.of, notes.ok, notes.rows) == (17, 17, 17)
    tree = read_tree(out)
    take_calls(config)
    assert build_toy(out, WORDS, config) == (counts, [])
    assert take_calls(config) == []
    assert read_tree(out) == tree


def test_the_bytes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for workers in (1, 3):
        _, outcomes = build_toy(tmp_path / str(workers), WORDS, rows_per_shard=3, workers=workers)
        assert failures(outcomes) == []
    assert read_tree(tmp_path / "1") == read_tree(tmp_path / "3")


def test_only_new_work_is_done_when_items_come_and_go(out: Path, config: ToyConfig) -> None:
    build_toy(out, WORDS, config)
    take_calls(config)
    # "b7" comes before "c0" and after "b5"; its neighbour c0 is as before, but b5's changes.
    added = [*WORDS[:7], "b7", *WORDS[7:]]
    build_toy(out, added, config)
    check(out, added)
    calls = take_calls(config)
    assert items_of(calls) == ["b7"]
    assert Counter(call.split()[0] for call in calls) == {"item": 1, "link": 2, "note": 2}
    for words in (WORDS, added):
        build_toy(out, words, config)
        check(out, words)
        assert take_calls(config) == []


@pytest.mark.parametrize("size", [1, 100])
def test_rows_that_fail_are_tried_again_and_later_stages_catch_up(
    out: Path, config: ToyConfig, size: int
) -> None:
    words, failing = ["a", "failing1", "failing2", "k", "z"], ["failing1", "failing2"]
    Path(config.trouble).touch()
    for _ in range(2):
        counts, _ = build_toy(out, words, config, rows_per_shard=size)
        check(out, words, failed=failing)
        assert (counts[0].ok, counts[0].failed, counts[0].reasons) == (3, 2, {"trouble": 2})
    Path(config.trouble).unlink()
    take_calls(config)
    counts, _ = build_toy(out, words, config, rows_per_shard=size)
    assert (counts[0].ok, counts[0].failed) == (5, 0)
    check(out, words)
    assert items_of(take_calls(config)) == failing
    assert build_toy(out, words, config, rows_per_shard=size) == (counts, [])


def test_equal_listings_give_equal_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairwright.tasks.store.open_tables.ITEMS_PER_PART", 7)
    folder = Folder(str(tmp_path))
    names = write_items(folder, list_words(WORDS))
    assert [read_about(Part(folder, name))["rows"] for name in names] == ["7", "7", "6"]
    assert write_items(folder, list_words(WORDS)) == names
    build_toy(tmp_path, WORDS, rows_per_shard=4)
    check(tmp_path, WORDS)


def test_a_killed_build_under_another_fingerprint_lends_no_rows(
    out: Path, config: ToyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patches:
        patches.setattr("pairwright.tasks.store.shard._in_order", stop)
        with pytest.raises(Killed):
            build_toy(out, WORDS, config)
    assert len(items_of(take_calls(config))) == 10
    build_toy(out, WORDS, config, stages=(replace(STAGES[0], version=2),))
    assert len(items_of(take_calls(config))) == len(WORDS)
    build_toy(out, WORDS, config, stages=STAGES[:1])
    assert len(items_of(take_calls(config))) == len(WORDS) - 10


def test_a_dataset_that_cannot_be_written_to_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_toy(tmp_path, ["a", "b"])
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with toy_version(tmp_path, 1) as build:
        assert len(live_rows(build)["images"]) == 2
        assert sorted(tmp_path.rglob("*")) == before
